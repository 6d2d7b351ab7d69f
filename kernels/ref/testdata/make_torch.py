"""Writes torch.json: what PyTorch makes of small inputs of the ops of transformers, and of the loss of pixels, forward and backward.

    python3 make_torch.py > torch.json     (torch 2.5 or newer)
"""
import json

import torch
import torch.nn.functional as F

torch.manual_seed(1)
cases = {}


def case(name, f, inputs, params=(), tokens=None):
    """Records f's output for random inputs and parameters, and their gradients for a random gradient of the output."""
    leaves = [torch.randn(s).requires_grad_() for s in [*inputs, *params]]
    y = f(*([] if tokens is None else [tokens]), *leaves)
    dy = torch.ones(()) if y.dim() == 0 else torch.randn(y.shape)
    y.backward(dy)
    n, flat = len(inputs), lambda t: [round(float(v), 9) for v in t.detach().flatten()]
    cases[name] = {
        "tokens": [] if tokens is None else tokens.flatten().tolist(),
        "x": [flat(t) for t in leaves[:n]], "params": [flat(t) for t in leaves[n:]], "y": flat(y), "dy": flat(dy),
        "dx": [flat(t.grad) for t in leaves[:n]], "dparams": [flat(t.grad) for t in leaves[n:]],
    }


def attention(heads, kv, dim):
    def f(x):
        n, t, _ = x.shape
        q, k, v = (p.view(n, t, -1, dim).transpose(1, 2) for p in x.split([heads * dim, kv * dim, kv * dim], 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=kv != heads)
        return y.transpose(1, 2).reshape(n, t, heads * dim)
    return f


def rotary(heads, dim, base):
    """Llama's: each half of a head turned against the other."""
    def f(x):
        n, t, _ = x.shape
        angle = torch.outer(torch.arange(t).float(), base ** (-torch.arange(0, dim, 2).float() / dim))
        cos, sin = torch.cat([angle.cos()] * 2, 1), torch.cat([angle.sin()] * 2, 1)
        h, rest = x[..., :heads * dim].reshape(n, t, heads, dim), x[..., heads * dim:]
        turned = torch.cat([-h[..., dim // 2:], h[..., :dim // 2]], 3)
        h = h * cos[None, :, None] + turned * sin[None, :, None]
        return torch.cat([h.reshape(n, t, heads * dim), rest], 2)
    return f


case("layernorm", lambda x, w, b: F.layer_norm(x, (5,), w, b), [(2, 3, 5)], [(5,), (5,)])
case("rmsnorm", lambda x, w: F.rms_norm(x, (5,), w, 1e-5), [(2, 3, 5)], [(5,)])
case("gelu", F.gelu, [(2, 9)])
case("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), [(2, 9)])
case("silu", F.silu, [(2, 9)])
case("multiply", lambda x, y: x * y, [(2, 9), (2, 9)])
case("linear", F.linear, [(2, 3, 5)], [(4, 5), (4,)])
case("embedding", lambda i, w, p: F.embedding(i, w) + p[:4], [], [(3, 2), (5, 2)], torch.tensor([[0, 2, 2, 0], [2, 2, 0, 2]]))
case("loss", lambda i, x: F.cross_entropy(x.view(-1, 7), i.view(-1)), [(2, 3, 7)], [], torch.tensor([[0, 6, 3], [1, 1, 5]]))
case("rotary", rotary(2, 6, 10000.0), [(2, 5, 15)])
case("attention", attention(2, 2, 4), [(2, 5, 24)])
case("grouped attention", attention(4, 2, 3), [(2, 5, 24)])
# Images are channels last here, classes second there; -100 is the label of pixels that do not count.
case("loss of pixels", lambda i, x: F.cross_entropy(x.permute(0, 3, 1, 2), i), [(2, 3, 4, 5)], [], torch.tensor([
    [[0, 1, 4, 3], [-100, 2, 2, 0], [4, 4, -100, 1]], [[3, -100, 3, 3], [0, 0, 1, 2], [-100, 4, 2, 1]]]))
print(json.dumps(cases, separators=(",", ":")).replace('},"', '},\n"'))
