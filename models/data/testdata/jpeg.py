"""Makes jpeg/: small JPEGs of every chroma subsampling, and beside each a PNG of what libjpeg-turbo decodes of it.

    pip install pillow==13.0.0 simplejpeg numpy
    python models/data/testdata/jpeg.py models/data/testdata/jpeg
"""
import io
import os
import sys

import numpy as np
import simplejpeg
from PIL import Image


def picture(w, h, seed):
    """Waves and blocks of random colors, so that chroma has slopes and edges."""
    y, x = np.mgrid[0:h, 0:w]
    waves = np.stack([128 + 127 * np.sin(x / 3.1 + seed), 255 * (x + y) / (w + h), 128 + 100 * np.cos(y / 2.3)], -1)
    colors = np.random.default_rng(seed).integers(0, 256, (h // 5 + 1, w // 5 + 1, 3))
    blocks = colors.repeat(5, 0).repeat(5, 1)[:h, :w]
    return np.clip(np.where((x // 7 + y // 7)[..., None] % 2 == 0, waves, blocks), 0, 255).astype(np.uint8)


def keep(folder, name, jpeg):
    with open(os.path.join(folder, name + ".jpg"), "wb") as f:
        f.write(jpeg)
    Image.open(io.BytesIO(jpeg)).convert("RGB").save(os.path.join(folder, name + ".png"), optimize=True)


def main(folder):
    os.makedirs(folder, exist_ok=True)
    seed = 0
    for subsampling in ["444", "422", "420", "440", "411"]:
        for w, h in [(37, 23), (33, 2), (5, 9), (3, 3), (2, 7)]:
            pixels = np.ascontiguousarray(picture(w, h, seed))
            keep(folder, f"{subsampling}-{w}x{h}", simplejpeg.encode_jpeg(pixels, quality=90, colorsubsampling=subsampling, fastdct=False))
            seed += 1
    for name, how in {"progressive-420": dict(subsampling=2, progressive=True), "restart-422": dict(subsampling=1, restart_marker_blocks=2)}.items():
        out = io.BytesIO()
        Image.fromarray(picture(45, 31, 99)).save(out, "JPEG", quality=85, **how)
        keep(folder, name, out.getvalue())


main(sys.argv[1])
