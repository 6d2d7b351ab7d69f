# Draws the samples of docs/pytorch.md: pictures of discs and squares in shapes, the same with masks in pairs, and sums in sums.jsonl.
import json
import random
from pathlib import Path

from PIL import Image, ImageDraw

random.seed(0)
for i in range(240):
    picture, mask = Image.new("RGB", (64, 64), (30, 30, random.randrange(90))), Image.new("L", (64, 64), 0)
    kind, split = i % 2, "train" if i < 200 else "test"
    x, y, r = random.randrange(20, 44), random.randrange(20, 44), random.randrange(8, 16)
    for image, color in ((picture, (220, 90 + 90 * kind, 200 - 150 * kind)), (mask, kind + 1)):  # in masks 1 is a disc, 2 a square
        draw = ImageDraw.Draw(image).rectangle if kind else ImageDraw.Draw(image).ellipse
        draw((x - r, y - r, x + r, y + r), color)
    folders = (f"shapes/{split}/{['disc', 'square'][kind]}", picture), (f"pairs/{split}/images", picture), (f"pairs/{split}/masks", mask)
    for folder, image in folders:
        Path(folder).mkdir(parents=True, exist_ok=True)
        image.save(f"{folder}/{i:03}.png")
with open("sums.jsonl", "w") as file:
    for _ in range(2000):
        a, b = random.randrange(100), random.randrange(100)
        print(json.dumps({"prompt": f"{a}+{b}=", "completion": str(a + b)}), file=file)
