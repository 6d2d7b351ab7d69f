"""Language models in plain PyTorch, to compare ours with: GPT-2 and Llama, from their papers, with Hugging Face's names of parameters.

    python3 torch_language.py MODEL SIZE OUT [--untied] [--rope-theta 10000] [--norm-eps 1e-5] [--json] [--steps 10] [--rate 0.03]     MODEL: gpt2 or llama; SIZE: tiny or 124M

Draws weights, tokens and labels from a seed and takes steps of gradient descent on the same batch. OUT is a folder: weights.safetensors
has the weights in Hugging Face's layout, gradients.safetensors the gradients of the first step, reference.json sizes, tokens, labels and
the losses. With --json, OUT is one file of JSON with all of it.
"""
import argparse
import ctypes
import json
import pathlib
import struct

import torch
import torch.nn.functional as F

SIZES = {
    ("gpt2", "tiny"): dict(batch=2, length=6, vocabulary=9, positions=7, width=8, heads=2, blocks=2),
    ("gpt2", "124M"): dict(batch=1, length=64, vocabulary=50257, positions=1024, width=768, heads=12, blocks=12),
    ("llama", "tiny"): dict(batch=2, length=6, vocabulary=9, width=16, heads=4, kv_heads=2, hidden=24, blocks=2),
    ("llama", "124M"): dict(batch=1, length=64, vocabulary=32000, width=768, heads=12, kv_heads=4, hidden=2048, blocks=12),
}


class GPT2:
    """Radford et al. 2019. Matrices of blocks are [in, out], as Hugging Face's Conv1D has them."""

    def __init__(self, draw, c):
        self.c = c
        w = c["width"]
        draw("transformer.wte.weight", c["vocabulary"], w)
        draw("transformer.wpe.weight", c["positions"], w)
        for i in range(c["blocks"]):
            h = f"transformer.h.{i}."
            for norm in ("ln_1", "ln_2"):
                draw(h + norm + ".weight", w)
                draw(h + norm + ".bias", w)
            for name, inner, out in (("attn.c_attn", w, 3 * w), ("attn.c_proj", w, w), ("mlp.c_fc", w, 4 * w), ("mlp.c_proj", 4 * w, w)):
                draw(h + name + ".weight", inner, out)
                draw(h + name + ".bias", out)
        draw("transformer.ln_f.weight", w)
        draw("transformer.ln_f.bias", w)
        if c["untied"]:
            draw("lm_head.weight", c["vocabulary"], w)

    def logits(self, p, tokens):
        c = self.c
        n, t = tokens.shape
        affine = lambda x, name: x @ p[name + ".weight"] + p[name + ".bias"]
        norm = lambda x, name: F.layer_norm(x, (c["width"],), p[name + ".weight"], p[name + ".bias"], c["norm_eps"])
        x = p["transformer.wte.weight"][tokens] + p["transformer.wpe.weight"][:t]
        for i in range(c["blocks"]):
            h = f"transformer.h.{i}."
            qkv = affine(norm(x, h + "ln_1"), h + "attn.c_attn").split(c["width"], 2)
            q, k, v = (s.view(n, t, c["heads"], -1).transpose(1, 2) for s in qkv)
            y = causal(q, k, v).transpose(1, 2).reshape(n, t, c["width"])
            x = x + affine(y, h + "attn.c_proj")
            x = x + affine(F.gelu(affine(norm(x, h + "ln_2"), h + "mlp.c_fc"), approximate="tanh"), h + "mlp.c_proj")
        return norm(x, "transformer.ln_f") @ p["lm_head.weight" if c["untied"] else "transformer.wte.weight"].T


class Llama:
    """Touvron et al. 2023, with the grouped heads of Llama 2. Rotation turns channels i and i + D/2 of a head, as Hugging Face's does."""

    def __init__(self, draw, c):
        self.c = c
        w, d = c["width"], c["width"] // c["heads"]
        draw("model.embed_tokens.weight", c["vocabulary"], w)
        for i in range(c["blocks"]):
            h = f"model.layers.{i}."
            draw(h + "input_layernorm.weight", w)
            draw(h + "post_attention_layernorm.weight", w)
            for name, out, inner in (
                ("self_attn.q_proj", w, w), ("self_attn.k_proj", c["kv_heads"] * d, w), ("self_attn.v_proj", c["kv_heads"] * d, w),
                ("self_attn.o_proj", w, w), ("mlp.gate_proj", c["hidden"], w), ("mlp.up_proj", c["hidden"], w), ("mlp.down_proj", w, c["hidden"]),
            ):
                draw(h + name + ".weight", out, inner)
        draw("model.norm.weight", w)
        if c["untied"]:
            draw("lm_head.weight", c["vocabulary"], w)

    def logits(self, p, tokens):
        c = self.c
        n, t = tokens.shape
        d = c["width"] // c["heads"]
        linear = lambda x, name: F.linear(x, p[name + ".weight"])
        norm = lambda x, name: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + c["norm_eps"]) * p[name + ".weight"]
        angles = torch.outer(torch.arange(t).double(), c["rope_theta"] ** (-torch.arange(0, d, 2).double() / d))
        turns = torch.polar(torch.ones_like(angles), angles)

        def turned(x):
            a, b = x.chunk(2, -1)
            y = torch.complex(a, b)
            y = y * turns.to(y.dtype)
            return torch.cat([y.real, y.imag], -1)

        x = p["model.embed_tokens.weight"][tokens]
        for i in range(c["blocks"]):
            h = f"model.layers.{i}."
            y = norm(x, h + "input_layernorm")
            q, k, v = (linear(y, h + f"self_attn.{s}_proj").view(n, t, -1, d).transpose(1, 2) for s in "qkv")
            k, v = (s.repeat_interleave(c["heads"] // c["kv_heads"], 1) for s in (turned(k), v))
            x = x + linear(causal(turned(q), k, v).transpose(1, 2).reshape(n, t, c["width"]), h + "self_attn.o_proj")
            y = norm(x, h + "post_attention_layernorm")
            x = x + linear(F.silu(linear(y, h + "mlp.gate_proj")) * linear(y, h + "mlp.up_proj"), h + "mlp.down_proj")
        return F.linear(norm(x, "model.norm"), p["lm_head.weight" if c["untied"] else "model.embed_tokens.weight"])


def causal(q, k, v):
    scores = q @ k.transpose(2, 3) / q.shape[3] ** 0.5
    unseen = torch.ones(scores.shape[2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(unseen, float("-inf")).softmax(3) @ v


def drawer(params, deviation):
    """Vectors of norms are around 1, all else around 0."""
    def draw(name, *shape):
        one = len(shape) == 1 and name.endswith("weight")
        params[name] = (deviation * torch.randn(*shape) + one).requires_grad_()
    return draw


def save(path, tensors):
    header, at = {}, 0
    for name, t in tensors.items():
        bytes = t.element_size() * t.numel()
        header[name] = {"dtype": "F32" if t.is_floating_point() else "I64", "shape": list(t.shape), "data_offsets": [at, at + bytes]}
        at += bytes
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for t in tensors.values():
            t = t.detach().contiguous()
            f.write(ctypes.string_at(t.data_ptr(), t.element_size() * t.numel()))


def flat(t):
    return [round(float(v), 8) for v in t.detach().flatten()]


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("model", choices=["gpt2", "llama"])
    a.add_argument("size", choices=["tiny", "124M"])
    a.add_argument("out", type=pathlib.Path)
    a.add_argument("--untied", action="store_true")
    a.add_argument("--rope-theta", type=float, default=10000.0)
    a.add_argument("--norm-eps", type=float, default=1e-5)
    a.add_argument("--json", action="store_true")
    a.add_argument("--steps", type=int, default=10)
    a.add_argument("--rate", type=float, default=0.03)
    a = a.parse_args()
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    c = dict(SIZES[a.model, a.size], untied=a.untied, rope_theta=a.rope_theta, norm_eps=a.norm_eps)
    params = {}
    model = {"gpt2": GPT2, "llama": Llama}[a.model](drawer(params, 0.3 if a.size == "tiny" else 0.02), c)
    out = {"model": a.model, "size": a.size, "rate": a.rate, "sizes": c, "torch": torch.__version__, "losses": []}
    tokens, labels = torch.randint(0, c["vocabulary"], (2, c["batch"], c["length"]))
    out["tokens"], out["labels"] = tokens.flatten().tolist(), labels.flatten().tolist()
    out["parameters"] = sum(p.numel() for p in params.values())
    if a.json:
        out["weights"] = {name: flat(p) for name, p in params.items()}
    else:
        a.out.mkdir(parents=True, exist_ok=True)
        save(a.out / "weights.safetensors", params)
    for step in range(a.steps):
        loss = F.cross_entropy(model.logits(params, tokens).view(-1, c["vocabulary"]), labels.view(-1))
        gradients = dict(zip(params, torch.autograd.grad(loss, list(params.values()))))
        out["losses"].append(float(loss.detach()))
        if step == 0 and a.json:
            out["gradients"] = {name: flat(g) for name, g in gradients.items()}
        elif step == 0:
            save(a.out / "gradients.safetensors", gradients)
        with torch.no_grad():
            for name, p in params.items():
                p -= a.rate * gradients[name]
    text = json.dumps(out, separators=(",", ":")).replace('],"', '],\n"')
    (a.out if a.json else a.out / "reference.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
