"""First gradients beside PyTorch's in float64.

    python3 torch_gradients.py out/exported OUT [MODEL ...]

OUT/MODEL is a folder that torch_export.py writes; it is made if it has no model. Without models it takes all folders there. One step of gradient
descent with a large rate is taken from the archive, and the gradient is the difference of the weights over the rate: rounding of weights has
no part in it. An error is the norm of the difference to float64's gradient over the norm of that. Prints a row of a table for each model: the
errors of the whole gradient, ours and that of PyTorch in float32, and the largest error of a tensor, ours and PyTorch's, among those whose
norm is at least a thousandth of the whole.
"""
import copy
import json
import pathlib
import subprocess
import sys

from safetensors import safe_open

from torch_export import draw, loss_of

RATE = 1024.0  # a power of two: products with it are exact
LEAST = 1e-3  # share of the gradient's norm from which a tensor counts


def gradients(model, samples, labels):
    """By the name of a parameter, in float64."""
    loss_of(model(samples), labels).backward()
    return {name: p.grad.double() for name, p in model.named_parameters() if p.grad is not None}


def ours(program, folder, model):
    """The gradients of one step of our program."""
    after = folder / "after.safetensors"
    subprocess.run([program, "-step", str(RATE), "-weights", after, folder], check=True, capture_output=True, text=True)
    with safe_open(after, "pt") as weights:
        all = {name: (p.detach().double() - weights.get_tensor(name).double()) / RATE for name, p in model.named_parameters() if p.requires_grad and name in weights.keys()}
    after.unlink()
    return all


def norm(tensors):
    return sum(float(x.square().sum()) for x in tensors) ** 0.5


def errors(have, want):
    """Of the whole gradient, and of the worst tensor that counts."""
    whole = norm(want.values())
    worst = max(norm([have[k] - x]) / norm([x]) for k, x in want.items() if norm([x]) >= LEAST * whole)
    return norm(have[k] - x for k, x in want.items()) / whole, worst


def row(program, out, name):
    folder = out / name
    if not list(folder.glob("model.*")):
        script = pathlib.Path(__file__).with_name("torch_export.py")
        subprocess.run([sys.executable, script, name, folder, "--steps", "0"], check=True, capture_output=True)
    reference = json.loads((folder / "reference.json").read_text())
    model, samples, labels, *_ = draw(name, reference["image"], reference["batch"])
    have = ours(program, folder, model)
    double = samples.double() if samples.is_floating_point() else samples
    want = gradients(copy.deepcopy(model).double(), double, labels)
    single = gradients(model, samples, labels)
    if have.keys() != want.keys():
        raise SystemExit(f"{name}: gradients of {sorted(have.keys() ^ want.keys())} on one side alone")
    (a, b), (c, d) = errors(have, want), errors(single, want)
    return f"| {name} | {a:.1e} | {c:.1e} | {b:.1e} | {d:.1e} |"


def main():
    program, out = sys.argv[1], pathlib.Path(sys.argv[2])
    print("| model | ours | PyTorch's float32 | ours, worst tensor | PyTorch's, worst tensor |")
    print("|---|---|---|---|---|", flush=True)
    for name in sys.argv[3:] or sorted(p.name for p in out.iterdir()):
        print(row(program, out, name), flush=True)


if __name__ == "__main__":
    main()
