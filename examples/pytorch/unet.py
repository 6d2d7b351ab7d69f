# Writes unet.pt2, a U-Net with logits N,classes,H,W.
import torch
from torch import nn


def block(c, k):
    first = nn.Conv2d(c, k, 3, padding=1), nn.BatchNorm2d(k), nn.ReLU()
    return nn.Sequential(*first, nn.Conv2d(k, k, 3, padding=1), nn.BatchNorm2d(k), nn.ReLU())


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([block(3, 16), block(16, 32)])
        self.bottom = block(32, 64)
        self.up = nn.ModuleList([block(64 + 32, 32), block(32 + 16, 16)])
        self.pool, self.grow, self.head = nn.MaxPool2d(2), nn.Upsample(scale_factor=2), nn.Conv2d(16, 3, 1)

    def forward(self, x):
        skips = []
        for part in self.down:
            x = part(x)
            skips.append(x)
            x = self.pool(x)
        x = self.bottom(x)
        for part, skip in zip(self.up, reversed(skips)):
            x = part(torch.cat([self.grow(x), skip], 1))
        return self.head(x)


if __name__ == "__main__":
    torch.manual_seed(0)
    program = torch.export.export(UNet().train(), (torch.randn(4, 3, 56, 56),), strict=False)
    torch.export.save(program, "unet.pt2")
