"""Writes gpt2.json: a toy GPT-2 in PyTorch, its parameters, a batch, the losses of ten steps of gradient descent, and the gradients
of the first.

    python3 make_gpt2.py > gpt2.json     (torch 2.5 or newer)
"""
import json

import torch
import torch.nn.functional as F

BATCH, LENGTH, VOCABULARY, POSITIONS, WIDTH, HEADS, BLOCKS, RATE = 2, 6, 9, 7, 8, 2, 2, 0.3
torch.manual_seed(1)
params = {}


def parameter(name, *shape):
    params[name] = (0.3 * torch.randn(*shape) + (name.endswith("weight") and len(shape) == 1)).requires_grad_()


def linear(name, out, inner):
    parameter(name + ".weight", out, inner)
    parameter(name + ".bias", out)


def norm(name):
    parameter(name + ".weight", WIDTH)
    parameter(name + ".bias", WIDTH)


parameter("transformer.embed.weight", VOCABULARY, WIDTH)
parameter("transformer.embed.position", POSITIONS, WIDTH)
for i in range(BLOCKS):
    h = f"transformer.h.{i}."
    norm(h + "ln_1")
    linear(h + "attn.c_attn", 3 * WIDTH, WIDTH)
    linear(h + "attn.c_proj", WIDTH, WIDTH)
    norm(h + "ln_2")
    linear(h + "mlp.c_fc", 4 * WIDTH, WIDTH)
    linear(h + "mlp.c_proj", WIDTH, 4 * WIDTH)
norm("transformer.ln_f")
parameter("lm_head.weight", VOCABULARY, WIDTH)


def affine(x, name):
    return F.linear(x, params[name + ".weight"], params[name + ".bias"])


def normed(x, name):
    return F.layer_norm(x, (WIDTH,), params[name + ".weight"], params[name + ".bias"])


def attention(x):
    q, k, v = (p.view(BATCH, LENGTH, HEADS, -1).transpose(1, 2) for p in x.split(WIDTH, 2))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(BATCH, LENGTH, WIDTH)


def loss_of(tokens, labels):
    x = params["transformer.embed.weight"][tokens] + params["transformer.embed.position"][:LENGTH]
    for i in range(BLOCKS):
        h = f"transformer.h.{i}."
        x = x + affine(attention(affine(normed(x, h + "ln_1"), h + "attn.c_attn")), h + "attn.c_proj")
        x = x + affine(F.gelu(affine(normed(x, h + "ln_2"), h + "mlp.c_fc"), approximate="tanh"), h + "mlp.c_proj")
    logits = F.linear(normed(x, "transformer.ln_f"), params["lm_head.weight"])
    return F.cross_entropy(logits.view(-1, VOCABULARY), labels.view(-1))


def flat(t):
    return [round(float(v), 8) for v in t.detach().flatten()]


tokens, labels = torch.randint(0, VOCABULARY, (2, BATCH, LENGTH))
out = {"tokens": tokens.flatten().tolist(), "labels": labels.flatten().tolist(), "losses": []}
out["params"] = {name: flat(p) for name, p in params.items()}
for step in range(10):
    loss = loss_of(tokens, labels)
    for p in params.values():
        p.grad = None
    loss.backward()
    out["losses"].append(round(float(loss), 8))
    if step == 0:
        out["gradients"] = {name: flat(p.grad) for name, p in params.items()}
    with torch.no_grad():
        for p in params.values():
            p -= RATE * p.grad
print(json.dumps(out, separators=(",", ":")).replace('],"', '],\n"'))
