"""Models to try plimsoll_export.py with: functions that return a model, a batch, a loss and names of the layers."""

import torch
from torch import nn
from torch.nn import functional as F


def mlp():
    """Sixteen layers of 512 channels with dropout, as an nn.Sequential; ReLUs are in place."""
    hidden = [nn.Sequential(nn.Linear(512, 512), nn.ReLU(inplace=True), nn.Dropout(0.1)) for _ in range(16)]
    model = nn.Sequential(nn.Flatten(), nn.Linear(256, 512), *hidden, nn.Linear(512, 10))
    return model, torch.randn(256, 1, 16, 16), cross_entropy(256, 10)


class Residual(nn.Module):
    """The basic block of He et al. 2015."""

    def __init__(self, channels, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        same = stride == 1 and channels == width
        self.shortcut = nn.Identity() if same else nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        return F.relu(y + self.shortcut(x), inplace=True)


class ResNet(nn.Module):
    """A ResNet for small images; its forward is no nn.Sequential."""

    def __init__(self, blocks=5, classes=10):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn = nn.BatchNorm2d(16)
        widths = [(16, 16, 1), (16, 32, 2), (32, 64, 2)]
        self.groups = nn.ModuleList(Residual(c if i == 0 else w, w, s if i == 0 else 1) for c, w, s in widths for i in range(blocks))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(64, classes)

    def forward(self, x):
        x = self.bn(self.stem(x))
        for block in self.groups:
            x = block(x)
        return self.fc(torch.flatten(self.pool(x), 1))


def resnet():
    """ResNet-32 of He et al. 2015, its layers named."""
    return ResNet(), torch.randn(32, 3, 32, 32), cross_entropy(32, 10), ["stem", "bn", "groups.*", "pool", "fc"]


class Embedding(nn.Module):
    def __init__(self, vocabulary, length, channels):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, channels)
        self.positions = nn.Embedding(length, channels)
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, x):
        return self.tokens(x) + self.positions(torch.arange(x.shape[1], device=x.device))


class Attention(nn.Module):
    """x + attention(norm(x)), as in GPT-2."""

    def __init__(self, channels, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm = nn.LayerNorm(channels)
        self.qkv = nn.Linear(channels, 3 * channels)
        self.out = nn.Linear(channels, channels)

    def forward(self, x):
        q, k, v = (t.unflatten(2, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + F.dropout(self.out(y.transpose(1, 2).flatten(2)), self.dropout, self.training)


class MLP(nn.Module):
    """x + mlp(norm(x)), as in GPT-2."""

    def __init__(self, channels, dropout):
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        self.up = nn.Linear(channels, 4 * channels)
        self.down = nn.Linear(4 * channels, channels)
        self.dropout = dropout

    def forward(self, x):
        y = self.down(F.gelu(self.up(self.norm(x)), approximate="tanh"))
        return x + F.dropout(y, self.dropout, self.training)


class Head(nn.Module):
    """Logits by the weights of the embedding."""

    def __init__(self, channels, tied):
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        self.weight = tied

    def forward(self, x):
        return F.linear(self.norm(x), self.weight)


def gpt(blocks=4, channels=128, heads=4, length=128, batch=4, vocabulary=512, dropout=0.1):
    """A small GPT-2 with tied embeddings: attention and MLP of a block are a layer each."""
    first = Embedding(vocabulary, length, channels)
    middle = [m for _ in range(blocks) for m in (Attention(channels, heads, dropout), MLP(channels, dropout))]
    model = nn.Sequential(first, *middle, Head(channels, first.tokens.weight))
    tokens = torch.randint(vocabulary, (batch, length + 1))
    targets = tokens[:, 1:].reshape(-1)
    return model, tokens[:, :-1].contiguous(), lambda y: F.cross_entropy(y.flatten(0, 1), targets)


def cross_entropy(batch, classes):
    labels = torch.randint(classes, (batch,))
    return lambda y: F.cross_entropy(y, labels)
