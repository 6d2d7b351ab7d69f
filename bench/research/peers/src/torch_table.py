"""A table of models: exported by PyTorch as .pt2 archives, imported, and trained for three steps beside PyTorch.

    go build -C bench/research -o ../../out/exported ./peers/exported
    python3 torch_table.py out/exported out/pt2 [MODEL ...]

Without models it takes one small member of each of torchvision's classification families. Each model has 10 classes, images of 64 pixels
unless it needs more, a batch of 4, and a rate at which rounding does not grow (see torch_export.py). Prints a row of a table for each.
"""
import json
import pathlib
import subprocess
import sys

FAMILIES = """alexnet convnext_tiny densenet121 efficientnet_b0 efficientnet_v2_s googlenet inception_v3 maxvit_t mnasnet0_5 mobilenet_v2
mobilenet_v3_small regnet_x_400mf regnet_y_400mf resnet18 resnet50 resnext50_32x4d wide_resnet50_2 shufflenet_v2_x0_5 squeezenet1_1 swin_t swin_v2_t
vgg11 vgg11_bn vit_b_32""".split()


def last_line(text):
    lines = [line for line in text.strip().splitlines() if line]
    return lines[-1] if lines else ""


def export(name, folder, *more):
    """The last line of the error with which PyTorch refuses, or nothing."""
    script = pathlib.Path(__file__).with_name("torch_export.py")
    made = subprocess.run([sys.executable, script, name, folder, *more], capture_output=True, text=True)
    return last_line(made.stderr) if made.returncode != 0 else ""


def row(program, out, name):
    folder = out / name
    error = export(name, folder, "--steps", "0")
    if error:
        return [name, "no", "", error, "", "", ""]
    read = subprocess.run([program, folder], capture_output=True, text=True)
    if "0 losses" not in read.stderr:  # it is refused before its losses are looked at
        reason = last_line(read.stderr).split("model.pt2: ")[-1].split("; ")[0]
        return [name, "yes", "no", reason, "", "", ""]
    error = export(name, folder, "--keep")
    if error:
        return [name, "yes", "yes", error, "", "", ""]
    reference = json.loads((folder / "reference.json").read_text())
    read = subprocess.run([program, folder], capture_output=True, text=True)
    rows = [line for line in read.stdout.splitlines() if line.startswith(f"| {name} |")]
    if not rows:
        return [name, "yes", "yes", last_line(read.stderr), "", "", ""]
    losses = f"{reference['losses'][0]:.6f} to {reference['losses'][-1]:.6f}"
    verdict = "" if read.returncode == 0 else "losses differ"
    return [name, "yes", "yes", verdict, f"{reference['rate']:.0e}", losses, rows[0].split("|")[-2].strip()]


def main():
    program, out = sys.argv[1], pathlib.Path(sys.argv[2])
    print("| model | exported | imported | first refusal | rate | losses of PyTorch | ours differ by at most |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for name in sys.argv[3:] or FAMILIES:
        print("| " + " | ".join(row(program, out, name)) + " |", flush=True)
        for large in (out / name).glob("model.pt2"):
            large.unlink()


if __name__ == "__main__":
    main()
