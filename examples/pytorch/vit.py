import torch
from torchvision.models import VisionTransformer

torch.manual_seed(0)
model = VisionTransformer(image_size=56, patch_size=8, num_layers=4, num_heads=4, hidden_dim=64, mlp_dim=128, num_classes=2)
batch, any_batch = torch.randn(8, 3, 56, 56), {0: torch.export.Dim("n")}
program = torch.export.export(model.train(), (batch,), dynamic_shapes=(any_batch,), strict=False)
torch.export.save(program, "vit.pt2")
