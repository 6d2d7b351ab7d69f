"""The models of the zoo as nn.Modules, to exchange files of weights with.

    python3 torch_zoo.py

It reads names of folders, one a line, and answers each with a line when it is done. A folder has request.json (model, classes, tokens or the shape of images.f32, gain of the weights) and ours.safetensors. Loads that file with
load_state_dict(strict=True), and writes the module's logits of the samples in evaluation mode, ours.f32; then draws other values for every
tensor of the module, and writes its state_dict as theirs.safetensors and its logits as theirs.f32.
"""
import json
import math
import pathlib
import struct
import sys

import torch
import torch.nn.functional as F
import torchvision
from torch import nn
from torchvision.models import resnet

import torch_language

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[4] / "models" / "testdata"))
import skips

class Grown(nn.Module):
    """A module whose submodules are made when it first runs, each under its dotted name."""

    def child(self, name, make):
        try:
            return self.get_submodule(name)
        except AttributeError:
            pass
        *path, last = name.split(".")
        at = self
        for part in path:
            if part not in at._modules:
                at.add_module(part, nn.Module())
            at = at._modules[part]
        at.add_module(last, make())
        return at._modules[last]

    def conv(self, name, x, out, kernel=(1, 1), stride=1):
        pad = (kernel[0] // 2, kernel[1] // 2)
        return self.child(name, lambda: nn.Conv2d(x.shape[1], out, kernel, stride, pad, bias=False))(x)

    def norm(self, name, x):
        kind = nn.BatchNorm2d if x.dim() == 4 else nn.BatchNorm1d
        return self.child(name, lambda: kind(x.shape[1]))(x)

    def linear(self, name, x, out):
        return self.child(name, lambda: nn.Linear(x.shape[1], out))(x)


class UNet(Grown, skips.UNet):
    def __init__(self, convs, width, classes, head):
        nn.Module.__init__(self)
        self.sizes, self.head = (convs, width, classes), head

    def forward(self, x):
        scores = self.scores(x, *self.sizes)
        return scores.mean((2, 3)) if self.head else scores.permute(0, 2, 3, 1)


class AmoebaNet(Grown, skips.AmoebaNetD):
    def __init__(self, *sizes):
        nn.Module.__init__(self)
        self.sizes = sizes

    def value(self, name, *shape):
        module, field = name.rsplit(".", 1)
        made = self.child(module, lambda: nn.Linear(shape[1], shape[0]))
        return getattr(made, field)

    def forward(self, x):
        return self.logits(x, *self.sizes)


class SmallResNet(nn.Module):
    """He et al. 2015, section 4.2, of torchvision's blocks."""

    def __init__(self, depth, classes):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        width = 16
        for group in range(3):
            blocks = []
            for i in range((depth - 2) // 6):
                stride, out = (2 if group and not i else 1), 16 << group
                down = None
                if stride > 1:
                    down = nn.Sequential(nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out))
                blocks.append(resnet.BasicBlock(width, out, stride, down))
                width = out
            self.add_module(f"layer{group + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(64, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        return self.fc(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))


class PreActivation(Grown):
    """He et al. 2016, bottlenecks that normalize first."""

    def __init__(self, depth, classes):
        super().__init__()
        self.blocks, self.classes = (depth - 2) // 9, classes

    def block(self, name, x, width, stride):
        z = F.relu(self.norm(name + ".bn1", x))
        if stride > 1 or x.shape[1] != 4 * width:
            x = self.conv(name + ".downsample.0", z, 4 * width, stride=stride)
        y = F.relu(self.norm(name + ".bn2", self.conv(name + ".conv1", z, width, stride=stride)))
        y = F.relu(self.norm(name + ".bn3", self.conv(name + ".conv2", y, width, (3, 3))))
        return x + self.conv(name + ".conv3", y, 4 * width)

    def forward(self, x):
        x = self.conv("conv1", x, 16, (3, 3))
        for group in range(3):
            for i in range(self.blocks):
                x = self.block(f"layer{group + 1}.{i}", x, 16 << group, 2 if group and not i else 1)
        return self.linear("fc", F.relu(self.norm("bn", x)).mean((2, 3)), self.classes)


class MLP(Grown):
    def __init__(self, classes):
        super().__init__()
        self.classes = classes

    def forward(self, x):
        x = x.flatten(1)
        for name in ("hidden1", "hidden2", "hidden3"):
            x = F.relu(self.linear(name + ".fc", x, 128))
        return self.linear("fc", x, self.classes)


class Tiny(Grown):
    def __init__(self, classes):
        super().__init__()
        self.classes = classes

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm("bn1", self.conv("conv1", x, 8, (3, 3)))), 3, 2, 1)
        y = self.conv("dense.conv1", F.relu(self.norm("dense.norm1", x)), 16)
        x = torch.cat([x, self.conv("dense.conv2", F.relu(self.norm("dense.norm2", y)), 4, (3, 3))], 1)
        y = F.relu(self.norm("block.bn1", self.conv("block.conv1", x, 16, (3, 3), 2)))
        y = self.norm("block.bn2", self.conv("block.conv2", y, 16, (3, 3)))
        x = F.relu(y + self.norm("block.downsample.1", self.conv("block.downsample.0", x, 16, stride=2)))
        x = F.avg_pool2d(x + self.conv("preact.conv", F.relu(self.norm("preact.bn", x)), 16, (3, 3)), 2)
        return self.linear("fc", x.mean((2, 3)), self.classes)


class Siamese(Grown):
    """Two images in, one after the other along the batch."""

    def tower(self, x):
        for i in range(3):
            for j in range(3):
                x = F.relu(self.conv(f"tower{i + 1}.{j}.conv", x, 16 << i, (3, 3)))
            if x.shape[2] > 1:
                x = F.max_pool2d(x, 2)
        return x

    def forward(self, x):
        ends = [self.tower(half) for half in x.chunk(2)]
        x = torch.cat(ends, 1).flatten(1)
        return self.linear("fc2", F.relu(self.norm("bn", self.linear("fc1", x, 128))), 2)


class Text(Grown):
    """A language model of torch_language, its tensors parameters under Hugging Face's names."""

    def __init__(self, family, sizes):
        super().__init__()
        self.family = [family(self.draw, sizes)]  # a list, as the function is no submodule

    def draw(self, name, *shape):
        module, field = name.rsplit(".", 1)
        self.child(module, nn.Module).register_parameter(field, nn.Parameter(torch.zeros(*shape)))

    def forward(self, tokens):
        return self.family[0].logits(dict(self.named_parameters()), tokens)


def language(name, request):
    """gpt2-B-C and llama-B-C: the sizes that the zoo gives them."""
    name, untied = name.removesuffix("-tied"), not name.endswith("-tied")
    family, blocks, width = name.split("-")
    sizes = {
        "vocabulary": request["classes"], "width": int(width), "blocks": int(blocks), "heads": 4, "untied": untied,
        "positions": request["shape"][1], "kv_heads": 2, "hidden": (8 * int(width) // 3 + 7) // 8 * 8,
        "rope_theta": 10000.0, "norm_eps": 1e-5,
    }
    return Text({"gpt2": torch_language.GPT2, "llama": torch_language.Llama}[family], sizes)


def build(request):
    name, classes = request["model"], request["classes"]
    family, *numbers = name.split("-")
    numbers = [int(n) for n in numbers if n.isdigit()]
    if family in ("gpt2", "llama"):
        return language(name, request)
    own = {
        "unet": lambda: UNet(*(numbers or (2, 16)), classes, True), "unetseg": lambda: UNet(*(numbers or (2, 16)), classes, False),
        "amoebanet": lambda: AmoebaNet(*(numbers or (3, 32)), classes), "mlp": lambda: MLP(classes), "tiny": lambda: Tiny(classes), "siamese": lambda: Siamese(),
        **{f"resnet{n}": (lambda n=n: SmallResNet(n, classes)) for n in (20, 32, 56, 110)},
        **{f"resnet{n}": (lambda n=n: PreActivation(n, classes)) for n in (164, 1001)},
    }
    if name in own:
        return own[name]()
    more = {"aux_logits": False, "init_weights": False} if name == "inception_v3" else {}
    return torchvision.models.get_model(name, weights=None, num_classes=classes, **more)


def load(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, t in json.loads(data[8 : 8 + length]).items():
        if name != "__metadata__":
            begin, end = t["data_offsets"]
            raw = bytearray(data[8 + length + begin : 8 + length + end])
            tensors[name] = torch.frombuffer(raw, dtype={"F32": torch.float32, "I64": torch.int64}[t["dtype"]]).reshape(t["shape"])
    return tensors


def draw(name, t, gain):
    """Weights of He's variance, norms near the identity, counts of batches of 7."""
    if not t.is_floating_point():
        return torch.full_like(t, 7)
    v = 2 * torch.rand_like(t) - 1
    if t.dim() > 1:
        return v * gain * math.sqrt(6 / t[0].numel())
    return 0.25 * v + (1 if name.endswith((".running_var", ".weight")) else 0)


@torch.no_grad()
def exchange(folder):
    request = json.loads((folder / "request.json").read_text())
    torch.manual_seed(1)
    model = build(request).eval()
    if request.get("tokens"):
        samples = torch.tensor(request["tokens"]).reshape(request["shape"])
    else:
        samples = torch.frombuffer(bytearray((folder / "images.f32").read_bytes()), dtype=torch.float32).reshape(request["shape"])
    model(samples)  # which makes its submodules
    model.eval()
    model.load_state_dict(load(folder / "ours.safetensors"), strict=True)
    (folder / "ours.f32").write_bytes(model(samples).contiguous().numpy().tobytes())
    model.load_state_dict({name: draw(name, t, request["gain"]) for name, t in model.state_dict().items()}, strict=True)
    torch_language.save(folder / "theirs.safetensors", model.state_dict())
    (folder / "theirs.f32").write_bytes(model(samples).contiguous().numpy().tobytes())


if __name__ == "__main__":
    for line in sys.stdin:
        exchange(pathlib.Path(line.strip()))
        print("done", flush=True)
