# Computes the held-out loss of the trained vision transformer with PyTorch.
import torch
import torchvision
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy
from torchvision.transforms import v2

# Held-out pictures are cropped to 7/8 and normalized as ImageNet's are.
normalize = v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
view = v2.Compose([v2.ToImage(), v2.CenterCrop(56), v2.ToDtype(torch.float32, scale=True), normalize])
images, labels = zip(*torchvision.datasets.ImageFolder("shapes/test", view))

model = torchvision.models.VisionTransformer(
    image_size=56, patch_size=8, num_layers=4, num_heads=4, hidden_dim=64, mlp_dim=128, num_classes=2
)
model.load_state_dict(load_file("runs/vit/final.safetensors"))
with torch.no_grad():
    print(f"loss {cross_entropy(model.eval()(torch.stack(images)), torch.tensor(labels)):.5f}")
