"""Trains in PyTorch, in float64 and in float32, what `plimsoll train` has trained, and compares the weights. See bench/research/peers/oracle.

    python3 torch_oracle.py

It reads lines, and answers each with one. `draw FOLDER`: FOLDER has model.json (model, classes, shape of a batch), and gets first.safetensors.
`judge FOLDER`: FOLDER has case.json and the run's folder, run, and lies in a model's. The answer has, for the losses and for each tensor, the
largest distances of the run and of PyTorch's float32 from PyTorch's float64, the largest element, and how far training went. Float32 trains
DRAWS times, after the first time from weights that are moved by up to half an ulp, as roundings are. Updates follow the definitions:

    flush, one device   W(t+1) = W(t) - rule(mean of the parts' gradients at W(t))
    stash               stage s computes gradient t at W(max(0, t - d)), d minibatches behind it in flight: PipeDream (Narayanan et al. 2019), 3.3
    double_buffered     the mean gradient of group t, at W(max(0, t - 1)): PipeDream-2BW (Narayanan et al. 2021), 3.1

The rules are torch.optim's. Stages and d come from plan.json: a stage has d of the tasks B of earlier minibatches behind F of a minibatch.
"""
import json
import math
import pathlib
import sys

import torch
import torch.nn.functional as F

import torch_language
import torch_zoo

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[4] / "executor" / "testdata"))
import torch_optim

RULES = {  # as `plimsoll train --optimizer` has them without other flags
    "sgd": dict(Momentum=0.0, WeightDecay=1e-4),
    "momentum": dict(Momentum=0.9, WeightDecay=1e-4),
    "adam": dict(Beta1=0.9, Beta2=0.999, Epsilon=1e-8, WeightDecay=0.0),
    "adamw": dict(Beta1=0.9, Beta2=0.999, Epsilon=1e-8, WeightDecay=0.01),
    "muon": dict(Momentum=0.95, Beta1=0.9, Beta2=0.999, Epsilon=1e-8, WeightDecay=0.1),
}
BFLOAT16 = torch.bfloat16
DRAWS = 3


class Samples:
    """The batches that train reads: samples.bin and labels.bin, of a folder with model.json."""

    def __init__(self, folder):
        self.request = json.loads((folder / "model.json").read_text())
        self.text = self.request["model"].startswith(("gpt2", "llama"))
        read = lambda name, dtype: torch.frombuffer(bytearray((folder / name).read_bytes()), dtype=dtype)
        if self.text:
            shape = [-1] + self.request["shape"]
            self.x, self.y = read("samples.bin", torch.int32).view(shape).long(), read("labels.bin", torch.int32).view(shape).long()
            return
        n, height, width, channels = self.request["shape"]
        self.x = read("samples.bin", torch.float32).view(-1, n, height, width, channels).permute(0, 1, 4, 2, 3).contiguous()
        self.y = read("labels.bin", torch.int32).view(-1, n).long()

    def module(self):
        module = torch_zoo.build(self.request)
        module(self.x[0])  # which makes its submodules
        return module


def drawn(name, t):
    """Weights to begin with. Biases of BatchNorm keep activations 12 deviations off ReLU's kink, which float32 and float64 may be on two sides
    of: all channels above it, but for every other one within a block, which is below."""
    value = torch_zoo.draw(name, t, 1)
    if t.dim() == 1 and name.startswith(("bn", "layer")):
        if name.endswith(".weight"):
            value.fill_(0.25)
        if name.endswith(".bias"):
            value += 3
            value[1::2] -= 6 if ".bn1." in name else 0
    return value


def draw(folder):
    torch.manual_seed(1)
    state = Samples(folder).module().state_dict()
    torch_language.save(folder / "first.safetensors", {name: drawn(name, t) for name, t in state.items()})
    return {"torch": torch.__version__}


def layer_of(tensor):
    """The layer that a tensor belongs to, by the names that chain.json has."""
    parts = tensor.removeprefix("transformer.").removeprefix("model.").split(".")
    if parts[0] in ("wte", "wpe", "embed_tokens"):
        return "embed"
    if parts[0] in ("h", "layers"):
        return ".".join(parts[:2] + ["attn" if parts[2] in ("attn", "ln_1", "self_attn", "input_layernorm") else "mlp"])
    if parts[0] in ("ln_f", "norm", "lm_head"):
        return "head"
    return {"conv1": "stem", "bn1": "stem", "fc": "fc"}.get(parts[0], ".".join(parts[:2]))


def in_flight(plan, stage):
    """Minibatches whose backward is behind the forward of a later one, in a period that repeats."""
    assert plan["minibatches_per_period"] == 1, plan["minibatches_per_period"]
    start = {t["kind"]: t["start_s"] - t["shift"] * plan["period_s"] for t in plan["tasks"] if t["stage"] == stage}
    behind = 0
    while start["B"] - (behind + 1) * plan["period_s"] > start["F"]:
        behind += 1
    return behind


def staleness(case, run, names):
    """The delay of each tensor's weights, in updates, and the minibatches of an update."""
    none = dict.fromkeys(names, 0)
    if case["versions"] not in ("stash", "double_buffered"):
        return none, 1
    plan = json.loads((run / "plan.json").read_text())
    layers = [layer["name"] for layer in json.loads((run / "chain.json").read_text())["layers"]]
    behind = [in_flight(plan, s) for s in range(len(plan["stages"]))]
    assert len(behind) > 1 and max(behind) > 0, f"nothing is stale: {behind}"
    if case["versions"] == "double_buffered":
        return dict.fromkeys(names, 1), max(behind) + 1
    stage = {layers[l - 1]: s for s, at in enumerate(plan["stages"]) for l in range(at["first_layer"], at["last_layer"] + 1)}
    return {name: behind[stage[layer_of(name)]] for name in names}, 1


def rate(case, step):
    """A line over the steps of the warm-up, then half a cosine."""
    warmup, steps = case["warmup"], case["steps"]
    if step < warmup:
        return case["rate"] * (step + 1) / warmup
    return case["rate"] * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) / 2


def hidden(name, t):
    """Whether a weight is Muon's: a matrix of a hidden layer."""
    return t.dim() > 1 and not any(other in name for other in ("wte", "wpe", "embed_tokens", "lm_head")) and name != "fc.weight"


class Simulation:
    """A training in PyTorch with weights of several versions."""

    def __init__(self, case, samples, first, delay, group, dtype):
        self.case, self.samples, self.delay, self.group = case, samples, delay, group
        self.module = samples.module().to(dtype).train()
        values = {name: t.to(dtype if t.is_floating_point() else t.dtype, copy=True) for name, t in first.items()}
        self.buffers = {name: values.pop(name) for name, _ in self.module.named_buffers()}
        self.versions, self.losses = [values], []
        self.x = samples.x if samples.text else samples.x.to(dtype)
        flat = lambda name, t: t.reshape(t.shape[0], -1) if hidden(name, t) else t
        self.weights = {name: torch.nn.Parameter(flat(name, t.clone())) for name, t in values.items()}
        pairs = [(self.weights[name], {"Shape": t.shape, "Hidden": hidden(name, t)}) for name, t in values.items()]
        kind = "sgd" if case["optimizer"] == "momentum" else case["optimizer"]
        self.optimizers = torch_optim.optimizers(kind, pairs, {**RULES[case["optimizer"]], "MatricesOnly": True}, case["rate"])

    def loss(self, values, x, y):
        if self.samples.text:
            return F.cross_entropy(self.module.family[0].logits(values, x).flatten(0, 1), y.flatten())
        return F.cross_entropy(torch.func.functional_call(self.module, {**values, **self.buffers}, x), y)

    def gradients(self, update):
        """The mean gradient of an update's minibatches, at the weights that they see."""
        seen = {name: self.versions[max(0, update - late)][name].clone().requires_grad_() for name, late in self.delay.items()}
        for step in range(update * self.group, (update + 1) * self.group):
            parts = list(zip(self.x[step].chunk(self.case["parts"]), self.samples.y[step].chunk(self.case["parts"])))
            losses = [self.loss(seen, x, y) / len(parts) for x, y in parts]
            for loss in losses:
                (loss / self.group).backward()
            self.losses.append(sum(loss.item() for loss in losses))
        return {name: t.grad for name, t in seen.items()}

    def update(self, update):
        gradients = self.gradients(update)
        norm = math.sqrt(sum(float(g.double().square().sum()) for g in gradients.values()))
        scale = min(1.0, self.case["clip"] / norm) if self.case["clip"] else 1.0
        for name, p in self.weights.items():
            p.grad = (gradients[name] * scale).view_as(p)
        for optimizer in self.optimizers:
            for some in optimizer.param_groups:
                some["lr"] = rate(self.case, update * self.group)
            optimizer.step()
        self.versions.append({name: p.detach().view_as(self.versions[0][name]).clone() for name, p in self.weights.items()})

    def train(self):
        for update in range(self.case["steps"] // self.group):
            self.update(update)
        return {**self.versions[-1], **self.buffers, "losses": torch.tensor(self.losses, dtype=torch.float64)}


def moved(first, seed):
    """The weights, each moved by up to half an ulp."""
    generator = torch.Generator().manual_seed(seed)
    move = lambda t: t.double() * (1 + 2**-24 * (2 * torch.rand(t.shape, generator=generator, dtype=torch.float64) - 1))
    return {name: move(t) if seed and t.is_floating_point() else t for name, t in first.items()}


def judged(name, t):
    """The elements that are compared: all but GPT-2's biases of keys. Softmax takes them out again, so their gradients are roundings alone,
    which Adam scales to steps of the full rate."""
    if not name.endswith("attn.c_attn.bias"):
        return t
    q, _, v = t.chunk(3)
    return torch.cat([q, v])


def judge(folder):
    case, run, samples = json.loads((folder / "case.json").read_text()), folder / "run", Samples(folder.parent)
    first, ours = torch_zoo.load(folder.parent / "first.safetensors"), torch_zoo.load(run / "final.safetensors")
    delay, group = staleness(case, run, [name for name, _ in samples.module().named_parameters()])

    def train(dtype, first):
        torch.bfloat16 = dtype  # the type in which torch.optim.Muon iterates
        try:
            return Simulation(case, samples, first, delay, group, dtype).train()
        finally:
            torch.bfloat16 = BFLOAT16

    exact, rounded = train(torch.float64, first), [train(torch.float32, moved(first, draw)) for draw in range(DRAWS)]
    log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    first["losses"], ours["losses"] = torch.zeros(()), torch.tensor([line["loss"] for line in log if "step" in line])
    assert ours.keys() == exact.keys(), f"tensors of one side: {ours.keys() ^ exact.keys()}"
    far = lambda t, name: float(judged(name, t.double() - exact[name].double()).abs().max())
    return {
        name: dict(ours=far(t, name), noise=max(far(r[name], name) for r in rounded), largest=float(exact[name].double().abs().max()), went=far(first[name], name))
        for name, t in ours.items()
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    for line in sys.stdin:
        do, folder = line.split(maxsplit=1)
        print(json.dumps({"draw": draw, "judge": judge}[do](pathlib.Path(folder.strip()))), flush=True)
