"""Trains a small GPT-2 with plain PyTorch on the samples that `go run ./bench/research/peers/batches` has written, and prints its loss on held-out text.

    python3 torch_learn.py draw WEIGHTS [--length 64] [--blocks 2] [--width 64]        writes weights to begin with
    python3 torch_learn.py train WEIGHTS FOLDER [--batch 16] [--rate 0.002] ...         begins with them, prints JSON

AdamW is torch.optim's, with the decay on every parameter, as Plimsoll has it with optimizer.decay=all. With --optimizer muon torch.optim.Muon, which iterates in
bfloat16, updates the matrices of the blocks, at the scale of AdamW's updates, and AdamW all else. Weights have Hugging Face's names.
"""
import argparse
import array
import json
import pathlib
import struct

import torch
import torch.nn.functional as F

from torch_language import GPT2, save


IGNORED = -100  # the label of a token that does not count, F.cross_entropy's


def tokens_of(path, length):
    """Samples by their tokens and labels."""
    data = pathlib.Path(path).read_bytes()
    header = struct.unpack("<256i", data[:1024])
    assert header[0] == 20240520 and header[1] == 1, path
    tokens = array.array("H", data[1024:])
    samples = torch.tensor(tokens, dtype=torch.int64).view(-1, 2, length)
    samples[:, 1][samples[:, 1] == header[3] - 1] = IGNORED
    return samples


def load(path):
    data = pathlib.Path(path).read_bytes()
    (n,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + n])
    header.pop("__metadata__", None)
    out = {}
    for name, t in header.items():
        begin, end = t["data_offsets"]
        values = array.array("f", data[8 + n + begin : 8 + n + end])
        out[name] = torch.tensor(values).view(t["shape"]).requires_grad_()
    return out


def optimizers(params, a):
    """Those that update all parameters together."""
    adamw = lambda some: torch.optim.AdamW(some, lr=a.rate, betas=(0.9, 0.999), eps=1e-8, weight_decay=a.decay)
    if a.optimizer == "adamw":
        return [adamw(params.values())]
    hidden = {n for n, p in params.items() if p.dim() == 2 and ".h." in n}
    rest = [p for n, p in params.items() if n not in hidden]
    muon = torch.optim.Muon([params[n] for n in hidden], lr=a.rate, weight_decay=a.decay, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    return [muon, adamw(rest)]


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("do", choices=["draw", "train"])
    a.add_argument("weights")
    a.add_argument("folder", nargs="?")
    a.add_argument("--tied", action="store_true")
    for name, default in (("length", 64), ("batch", 16), ("blocks", 2), ("width", 64), ("heads", 4), ("seed", 1)):
        a.add_argument("--" + name, type=int, default=default)
    a.add_argument("--optimizer", choices=["adamw", "muon"], default="adamw")
    a.add_argument("--rate", type=float, default=0.002)
    a.add_argument("--decay", type=float, default=0.01)
    a = a.parse_args()
    torch.manual_seed(a.seed)
    torch.set_num_threads(1)
    c = dict(vocabulary=256, positions=a.length, width=a.width, heads=a.heads, blocks=a.blocks, untied=not a.tied)
    params = {}

    def draw(name, *shape):
        norm = len(shape) == 1 and name.endswith("weight")
        start = torch.ones(*shape) if norm else torch.zeros(*shape) if len(shape) == 1 else 0.02 * torch.randn(*shape)
        params[name] = start.requires_grad_()

    model = GPT2(draw, c)
    if a.do == "draw":
        save(a.weights, params)
        return
    start = load(a.weights)
    assert {n: p.shape for n, p in start.items()} == {n: p.shape for n, p in params.items()}, "other weights"
    params = start
    train, test = tokens_of(pathlib.Path(a.folder) / "train.bin", a.length), tokens_of(pathlib.Path(a.folder) / "test.bin", a.length)
    updates = optimizers(params, a)

    def loss(samples, reduction):
        return F.cross_entropy(model.logits(params, samples[:, 0]).flatten(0, 1), samples[:, 1].flatten(), reduction=reduction)

    for samples in train.split(a.batch):
        for p in params.values():
            p.grad = None
        value = loss(samples, "mean")
        value.backward()
        for u in updates:
            u.step()
    with torch.no_grad():
        held = sum(float(loss(s, "sum")) for s in test.split(64)) / int((test[:, 1] != IGNORED).sum())
    print(json.dumps({"torch": torch.__version__, "steps": len(train) // a.batch, "loss": value.item(), "test_loss": held}))


if __name__ == "__main__":
    main()
