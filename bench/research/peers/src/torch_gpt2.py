"""Times PyTorch's training steps of GPT-2 124M on the CPU in float32: forward, loss, backward and AdamW in its fused form, attention by
scaled_dot_product_attention, matrices by linear. Writes weights, Hugging Face's names and layouts, into FOLDER; reads lines "rate" and
answers each with the seconds, the seconds of the processor and the loss of one step of that rate on the same batch.

    torch_gpt2.py BATCH LENGTH THREADS FOLDER
"""
import json
import pathlib
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

from torch_language import SIZES, save

batch, length, threads = map(int, sys.argv[1:4])
folder = pathlib.Path(sys.argv[4])
torch.set_num_threads(threads)
torch.manual_seed(1)
sizes = SIZES["gpt2", "124M"]
width, heads, vocabulary = sizes["width"], sizes["heads"], sizes["vocabulary"]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(width, 3 * width), "c_proj": nn.Linear(width, width)})
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width), "c_proj": nn.Linear(4 * width, width)})

    def forward(self, x):
        n, t, _ = x.shape
        q, k, v = (s.view(n, t, heads, -1).transpose(1, 2) for s in self.attn["c_attn"](self.ln_1(x)).split(width, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, t, width)
        x = x + self.attn["c_proj"](y)
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(sizes["positions"], width)
        self.h = nn.ModuleList(Block() for _ in range(sizes["blocks"]))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight)


def published(name, p):
    """Matrices of blocks are [in, out] there."""
    return p.detach().T if name.startswith("h.") and p.dim() == 2 else p


model = GPT2()
for name, p in model.named_parameters():
    if p.dim() == 2:
        nn.init.normal_(p, std=0.02)
    elif name.endswith("bias"):
        nn.init.zeros_(p)
tokens, labels = torch.randint(0, vocabulary, (2, batch, length))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, fused=True)


def step():
    optimizer.zero_grad(set_to_none=True)
    loss = F.cross_entropy(model(tokens).view(-1, vocabulary), labels.view(-1))
    loss.backward()
    optimizer.step()
    return loss.item()


folder.mkdir(parents=True, exist_ok=True)
save(folder / "weights.safetensors", {"transformer." + name: published(name, p) for name, p in model.named_parameters()})
(folder / "batch.json").write_text(json.dumps({"tokens": tokens.flatten().tolist(), "labels": labels.flatten().tolist()}))
print("torch", torch.__version__, flush=True)
for line in sys.stdin:
    optimizer.param_groups[0]["lr"] = float(line)
    start, busy = time.perf_counter(), time.process_time()
    loss = step()
    print("%.9f %.9f %.9f" % (time.perf_counter() - start, time.process_time() - busy, loss), flush=True)
