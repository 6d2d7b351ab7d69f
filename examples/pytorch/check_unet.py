# Computes the held-out loss of the trained U-Net with PyTorch.
from pathlib import Path

import numpy
import torch
from PIL import Image
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy
from torchvision.transforms import v2
from unet import UNet

# Held-out pictures are cropped to 7/8 and normalized as ImageNet's are; their masks are cropped with them.
normalize = v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
view = v2.Compose([v2.ToImage(), v2.CenterCrop(56), v2.ToDtype(torch.float32, scale=True), normalize])
names = sorted(Path("pairs/test/images").iterdir())
images = torch.stack([view(Image.open(name)) for name in names])
masks = torch.stack([torch.from_numpy(numpy.array(Image.open(f"pairs/test/masks/{name.name}"))[4:60, 4:60]) for name in names])

model = UNet().eval()
model.load_state_dict(load_file("runs/unet/final.safetensors"), strict=False)  # counts of batches are not in the file
with torch.no_grad():
    print(f"loss {cross_entropy(model(images), masks.long()):.5f}")
