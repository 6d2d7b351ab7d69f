"""Takes steps of torch.optim in float64 from gradients that a run has had; reads and prints JSON. See TestOptimizersArePyTorchs.

Tensors are those of files. Muon takes the hidden matrices, as two axes, and AdamW all else; with MatricesOnly tensors of one axis have a
group without weight decay. PyTorch's Muon iterates in bfloat16: its own code runs with float64 in the place of that type.
"""
import json
import sys

import torch


def groups(some, r):
    plain = [p for p, t in some if r["MatricesOnly"] and len(t["Shape"]) < 2]
    decayed = [p for p, t in some if not (r["MatricesOnly"] and len(t["Shape"]) < 2)]
    return [g for g in (dict(params=decayed), dict(params=plain, weight_decay=0.0)) if g["params"]]


def adam(kind, some, r, rate):
    return kind(groups(some, r), lr=rate, betas=(r["Beta1"], r["Beta2"]), eps=r["Epsilon"], weight_decay=r["WeightDecay"])


def optimizers(kind, pairs, r, rate):
    if kind == "sgd":
        return [torch.optim.SGD(groups(pairs, r), lr=rate, momentum=r["Momentum"], weight_decay=r["WeightDecay"])]
    if kind != "muon":
        return [adam({"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[kind], pairs, r, rate)]
    hidden = [p for p, t in pairs if t["Hidden"]]
    muon = torch.optim.Muon(hidden, lr=rate, weight_decay=r["WeightDecay"], momentum=r["Momentum"], adjust_lr_fn="match_rms_adamw")
    return [muon, adam(torch.optim.AdamW, [(p, t) for p, t in pairs if not t["Hidden"]], r, rate)]


def train(run):
    flat = lambda t, values: torch.tensor(values, dtype=torch.float64).view([t["Shape"][0], -1] if t["Hidden"] else t["Shape"])
    pairs = [(torch.nn.Parameter(flat(t, t["Start"])), t) for t in run["Tensors"]]
    updates = optimizers(run["Kind"], pairs, {"MatricesOnly": False, **run["Rule"]}, run["Rate"])
    for step in range(len(run["Tensors"][0]["Grads"])):
        for p, t in pairs:
            p.grad = flat(t, t["Grads"][step])
        for u in updates:
            u.step()
    return [p.detach().flatten().tolist() for p, _ in pairs]


def main():
    torch.bfloat16 = torch.float64
    print(json.dumps([train(run) for run in json.load(sys.stdin)]))


if __name__ == "__main__":
    main()
