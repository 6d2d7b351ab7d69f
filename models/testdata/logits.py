"""Writes logits.txt: the logits that torchvision's models and those of skips.py compute, evaluating, from weights and
images that are functions of their names alone (see TestTorchvision). Needs PyTorch, torchvision and NumPy:

    python3 models/testdata/logits.py > models/testdata/logits.txt
"""

import numpy
import torch
import torchvision

import skips

CASES = [("resnet18", 33), ("densenet121", 64), ("vgg16", 32), ("vgg16_bn", 75), ("inception_v3", 107)]
SKIPS = [("unet-1-8", 32, skips.UNet), ("unet-3-8", 64, skips.UNet), ("amoebanet-3-16", 32, skips.AmoebaNetD), ("amoebanet-6-32", 96, skips.AmoebaNetD)]
CLASSES, BATCH = 5, 2


def hashed(name, count):
    """Numbers in [-1, 1), 24 bits each: splitmix64 of the name's FNV-1a hash plus the element's number."""
    state = 0xCBF29CE484222325
    for byte in name.encode():
        state = ((state ^ byte) * 0x100000001B3) % 2**64
    out = numpy.empty(count, numpy.float32)
    for first in range(0, count, 1 << 22):
        x = numpy.arange(first, min(first + (1 << 22), count), dtype=numpy.uint64) + numpy.uint64(1)
        x = x * numpy.uint64(0x9E3779B97F4A7C15) + numpy.uint64(state)
        x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        x = (x ^ (x >> numpy.uint64(31))) >> numpy.uint64(40)
        out[first : first + len(x)] = x.astype(numpy.float32) / numpy.float32(2**23) - numpy.float32(1)
    return out


def value(name, shape):
    """Weights of He's variance, so that activations neither vanish nor explode; norms near the identity."""
    v = hashed(name, int(numpy.prod(shape))).reshape(shape)
    if len(shape) > 1:
        return v * numpy.float32((6 / numpy.prod(shape[1:])) ** 0.5)
    near_one = name.endswith(".running_var") or name.endswith(".weight")
    return near_one + v * numpy.float32(0.25)


def build(name):
    extra = {"aux_logits": False, "init_weights": False} if name == "inception_v3" else {}
    return torchvision.models.get_model(name, weights=None, num_classes=CLASSES, **extra)


def show(name, image, model):
    shape = (BATCH, 3, image, image)
    images = torch.from_numpy(hashed("image", int(numpy.prod(shape))).reshape(shape))
    for logits in model(images):
        print(name, image, *(f"{x:.7g}" for x in logits.tolist()))


numpy.seterr(over="ignore")
torch.set_grad_enabled(False)
for name, image in CASES:
    model = build(name).eval()
    for key, tensor in model.state_dict().items():
        if tensor.is_floating_point():
            tensor.copy_(torch.from_numpy(value(key, tuple(tensor.shape))))
    show(name, image, model)
for name, image, net in SKIPS:
    numbers = [int(part) for part in name.split("-")[1:]]
    show(name, image, lambda images: net(value).logits(images, *numbers, CLASSES))
