"""The U-Net and the AmoebaNet-D of the zoo in PyTorch, evaluating, for logits.py. value(name, shape) gives parameters."""

import torch
import torch.nn.functional as F


class Net:
    def __init__(self, value):
        self.value = lambda name, *shape: torch.from_numpy(value(name, shape))

    def conv(self, name, x, out, kernel=(1, 1), stride=1):
        weight = self.value(name + ".weight", out, x.shape[1], *kernel)
        return F.conv2d(x, weight, stride=stride, padding=(kernel[0] // 2, kernel[1] // 2))

    def norm(self, name, x):
        mean, var, weight, bias = (self.value(f"{name}.{p}", x.shape[1]) for p in ("running_mean", "running_var", "weight", "bias"))
        return F.batch_norm(x, mean, var, weight, bias)


class UNet(Net):
    """(B, C) = (convs, width)."""

    def level(self, name, x, convs, mid, out):
        for i in range(1, convs + 1):
            x = self.conv(f"{name}.conv{i}", x, out if i == convs else mid, (3, 3))
            x = F.relu(self.norm(f"{name}.norm{i}", x))
        return x

    def logits(self, *sizes):
        return self.scores(*sizes).mean((2, 3))

    def scores(self, x, convs, width, classes, levels=5):
        skips = []
        for i in range(levels):
            skips.append(self.level(f"down{i + 1}", x, convs, width << i, width << i))
            x = F.max_pool2d(skips[-1], 2)
        x = self.level("bottom", x, convs, width << levels, width << (levels - 1))
        for i in reversed(range(levels)):
            x = torch.cat([F.interpolate(x, scale_factor=2), skips[i]], 1)
            x = self.level(f"up{i + 1}", x, convs, (width << i) // 2, (width << i) // 2)
        return self.conv("segment", x, classes)


class AmoebaNetD(Net):
    """(L, F) = (cells, filters)."""

    def pointwise(self, name, x):
        return self.norm(name + ".bn", self.conv(name, F.relu(x), self.width))

    def narrow(self, name, x, kernels, stride=1):
        for i, kernel in enumerate([(1, 1)] + kernels):
            x = self.conv(f"{name}.conv{i}", F.relu(x), self.width // 4, kernel, stride if i == 1 else 1)
            x = self.norm(f"{name}.bn{i}", x)
        return self.norm(name + ".bn", self.conv(name + ".out", F.relu(x), self.width))

    def normal(self, name, s):
        seven = [(1, 7), (7, 1)]
        s.append(self.pointwise(name + ".conv1", s[1]) + F.max_pool2d(s[1], 3, 1, 1))
        s.append(s[1] + self.narrow(name + ".conv2", s[0], seven))
        s.append(self.pointwise(name + ".conv3", s[0]) + self.narrow(name + ".conv4", s[0], seven))
        s.append(F.max_pool2d(s[2], 3, 1, 1) + s[2])
        s.append(F.avg_pool2d(s[1], 3, 1, 1) + self.pointwise(name + ".conv5", s[5]))
        return torch.cat([s[0], s[3], s[4], s[6]], 1)

    def reduction(self, name, s):
        s.append(F.max_pool2d(s[0], 2) + F.max_pool2d(s[0], 3, 2, 1))
        s.append(s[2] + self.narrow(name + ".conv1", s[1], [(3, 3)], 2))
        s.append(self.narrow(name + ".conv2", s[2], [(1, 7), (7, 1)]) + F.max_pool2d(s[2], 3, 1, 1))
        s.append(s[3] + F.max_pool2d(s[1], 2))
        s.append(F.avg_pool2d(s[2], 3, 1, 1) + self.pointwise(name + ".conv3", s[3]))
        return torch.cat(s[4:], 1)

    def cell(self, name, reduces):
        self.width *= 2 if reduces else 1
        latest, earlier = self.outputs
        first = self.norm(name + ".bn1", self.conv(name + ".reduce1", F.relu(latest), self.width))
        second = earlier
        if self.reduced:
            x = F.relu(earlier)
            even = self.conv(name + ".reduce2.even", x, self.width // 2, stride=2)
            odd = self.conv(name + ".reduce2.odd", x[:, :, 1:, 1:], self.width // 2, stride=2)
            second = self.norm(name + ".bn2", torch.cat([even, odd], 1))
        elif earlier.shape[1] != self.width:
            second = self.norm(name + ".bn2", self.conv(name + ".reduce2", F.relu(earlier), self.width))
        step = self.reduction if reduces else self.normal
        self.outputs, self.reduced = (step(name, [first, second]), latest), reduces

    def logits(self, x, cells, filters, classes):
        self.width, self.reduced = filters // 4, False
        stem = self.norm("stem1.bn", self.conv("stem1.conv", x, self.width, (3, 3), 2))
        self.outputs = stem, stem
        for group in ("stem2", "stem3", "cell1", "cell2", "cell3", "cell4", "cell5"):
            if group in ("cell1", "cell3", "cell5"):
                for i in range(cells // 3):
                    self.cell(f"{group}.{i + 1}", False)
            else:
                self.cell(group, True)
        mean = self.outputs[0].mean((2, 3))
        return F.linear(mean, self.value("classify.fc.weight", classes, mean.shape[1]), self.value("classify.fc.bias", classes))
