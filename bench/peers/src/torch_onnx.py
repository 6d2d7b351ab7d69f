"""Image models in PyTorch, exported as ONNX files, to compare ours with.

    python3 torch_onnx.py MODEL OUT [--steps 3] [--rate R] [--image N] [--batch N]

MODEL is one of torchvision's, with 10 classes, or tiny, branches or unet, small ones of this file. Draws weights, images and labels from a
seed and takes steps of gradient descent on the same batch. OUT is a folder: model.onnx is the model before the first step, as the
classical exporter (dynamo=False) writes it in training mode, images.f32 the images (N,C,H,W), reference.json labels and losses. Dropout is
off: its random numbers are not ours.
"""
import argparse
import copy
import json
import pathlib
import warnings

import torch
import torch.nn.functional as F
from torch import nn


class Tiny(nn.Module):
    """A stem, a residual block of grouped convolutions, a concatenation and a classifier: most ops in few bytes."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1, bias=False), nn.BatchNorm2d(4, eps=1e-3, momentum=0.2), nn.ReLU(), nn.MaxPool2d(2))
        self.conv1, self.bn1 = nn.Conv2d(4, 4, 3, 1, 1, groups=2), nn.BatchNorm2d(4)
        self.narrow = nn.Conv2d(4, 2, 1)
        self.pool = nn.AvgPool2d(3, 1, 1)
        self.fc = nn.Sequential(nn.Linear(6 * 16, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 10))

    def forward(self, x):
        x = self.stem(x)
        y = F.relu(self.bn1(self.conv1(x)) + x)
        y = torch.cat([y, self.pool(self.narrow(y))], 1)
        return self.fc(torch.flatten(y, 1))


class Affine(nn.Module):
    """x W + b, written out."""

    def __init__(self, inner, out):
        super().__init__()
        self.w, self.b = nn.Parameter(torch.randn(inner, out)), nn.Parameter(torch.randn(out))

    def forward(self, x):
        return x @ self.w + self.b


class Branches(nn.Module):
    """Layers joined as DenseNet joins them, shapes computed from the batch, which is open, a mean for a pool."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv2d(3 + 2 * i, 2, 3, 1, 1) for i in range(4)])
        self.fc1, self.fc2, self.fc3 = nn.Linear(11, 6, bias=False), Affine(6, 7), nn.Linear(7, 10)

    def forward(self, x):
        all = [x]
        for conv in self.convs:
            all.append(F.relu(conv(torch.cat(all, 1))))
        x = torch.cat(all, 1).mean([2, 3])
        return self.fc3(self.fc2(F.relu(self.fc1(x.view(x.size(0), 1 * x.size(1))))))


class Skips(nn.Module):
    """Skips over many convolutions, within others, as in a U-Net."""

    def __init__(self, levels=3, convs=4):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, 1, 1)
        block = lambda inner: nn.Sequential(*[m for i in range(convs) for m in (nn.Conv2d(inner if i == 0 else 4, 4, 3, 1, 1), nn.ReLU())])
        self.down, self.up = nn.ModuleList([block(4) for _ in range(levels)]), nn.ModuleList([block(8) for _ in range(levels)])
        self.fc = nn.Linear(4, 10)

    def forward(self, x):
        x, skips = self.stem(x), []
        for block in self.down:
            x = block(x)
            skips.append(x)
        for block in self.up:
            x = block(torch.cat([x, skips.pop()], 1))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


OWN = {"tiny": Tiny, "branches": Branches, "skips": Skips}

# Image, batch and rate of each, where they are not 64, 4 and 1e-4. Deep models with norms of few pixels have gradients of norm 1000 and more:
# at a rate of 1e-5 the third loss of ResNet-50 differs by 5 % between PyTorch and itself with other kernels, or in float64.
SIZES = {
    "tiny": (16, 2, 0.05), "branches": (8, 2, 0.1), "skips": (8, 2, 0.5), "alexnet": (224, 2, 0.01), "vgg11": (224, 2, 1e-3), "vgg11_bn": (224, 2, 3e-5),
    "resnet50": (64, 4, 1e-8), "resnext50_32x4d": (64, 4, 1e-8), "mnasnet0_5": (64, 4, 1e-8),
    "inception_v3": (139, 4, 1e-8), "squeezenet1_1": (128, 2, 0.01), "googlenet": (78, 4, 1e-6),
}


def build(name):
    if name in OWN:
        return OWN[name]()
    import torchvision
    more = {"aux_logits": False, "init_weights": True} if name in ("inception_v3", "googlenet") else {}
    return getattr(torchvision.models, name)(num_classes=10, **more)


def export(model, images, path):
    open_batch = {"images": {0: "n"}} if isinstance(model, Branches) else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model, (images,), path, input_names=["images"], output_names=["logits"], training=torch.onnx.TrainingMode.TRAINING,
            do_constant_folding=False, dynamo=False, opset_version=17, dynamic_axes=open_batch,
        )


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("out", type=pathlib.Path)
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--rate", type=float)
    p.add_argument("--image", type=int)
    p.add_argument("--batch", type=int)
    a = p.parse_args()
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    model = build(a.model).train()
    for m in model.modules():
        if isinstance(m, nn.Dropout):
            m.p = 0.0
    image, batch, rate = SIZES.get(a.model, (64, 4, 1e-4))
    image, batch, rate = a.image or image, a.batch or batch, a.rate or rate
    images, labels = torch.randn(batch, 3, image, image), torch.randint(10, (batch,))
    a.out.mkdir(parents=True, exist_ok=True)
    export(copy.deepcopy(model), images, str(a.out / "model.onnx"))  # which runs it, and so moves running statistics
    descent, losses = torch.optim.SGD(model.parameters(), lr=rate), []
    for _ in range(a.steps):
        descent.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        descent.step()
        losses.append(loss.item())
    (a.out / "images.f32").write_bytes(images.numpy().tobytes())
    (a.out / "reference.json").write_text(json.dumps({
        "model": a.model, "torch": torch.__version__, "image": image, "batch": batch, "rate": rate, "labels": labels.tolist(), "losses": losses,
        "parameters": sum(p.numel() for p in model.parameters()),
    }))


if __name__ == "__main__":
    main()
