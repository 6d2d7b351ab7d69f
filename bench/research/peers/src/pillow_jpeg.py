"""Times Pillow, which decodes with libjpeg-turbo, on the JPEG files of a folder. Reads lines "work seconds" and answers each with the
seconds that a picture takes in the mean: decode, its RGB alone, or sample, a part of it, of half of each side or more, scaled to 224x224 as torchvision's RandomResizedCrop does, and normalized.

    pillow_jpeg.py FOLDER
"""
import pathlib
import random
import sys
import time

import numpy
from PIL import Image, features

files = sorted(pathlib.Path(sys.argv[1]).rglob("*.jpg"))


def decode(path):
    with Image.open(path) as f:
        return f.convert("RGB")


def sample(path):
    picture = decode(path)
    w, h = picture.size
    cw, ch = random.randint(w // 2, w), random.randint(h // 2, h)
    x, y = random.randint(0, w - cw), random.randint(0, h - ch)
    small = picture.crop((x, y, x + cw, y + ch)).resize((224, 224), Image.Resampling.BILINEAR)
    return (numpy.asarray(small, dtype=numpy.float32) / 255 - 0.45) / 0.225


print("Pillow", Image.__version__, "libjpeg-turbo", features.version("libjpeg_turbo"), flush=True)
for line in sys.stdin:
    name, seconds = line.split()
    work, n, begin = {"decode": decode, "sample": sample}[name], 0, time.perf_counter()
    while time.perf_counter() - begin < float(seconds):
        work(files[n % len(files)])
        n += 1
    print("%.9f" % ((time.perf_counter() - begin) / n), flush=True)
