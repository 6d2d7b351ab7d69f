"""Times PyTorch's causal scaled_dot_product_attention on the CPU, from queries, keys and values side by side. Reads lines
"batch length heads kv dim pass warm timed" and answers each with the median seconds of the pass, forward or backward.

    torch_attention.py THREADS
"""
import statistics
import sys
import time

import torch
import torch.nn.functional as F

torch.set_num_threads(int(sys.argv[1]))


def attention(x, heads, kv, dim):
    n, t, _ = x.shape
    q, k, v = (p.view(n, t, -1, dim).transpose(1, 2) for p in x.split([heads * dim, kv * dim, kv * dim], 2))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=kv != heads)
    return y.transpose(1, 2).reshape(n, t, heads * dim)


def forward(x, *shape):
    with torch.no_grad():
        attention(x, *shape)


def run_for(f, seconds):
    times, begin = [], time.perf_counter()
    while len(times) < 5 or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        f()
        times.append(time.perf_counter() - start)
    return times


print("torch", torch.__version__, flush=True)
for line in sys.stdin:
    *numbers, which, warm, timed = line.split()
    batch, length, *shape = map(int, numbers)
    heads, kv, dim = shape
    x = torch.rand(batch, length, (heads + 2 * kv) * dim, requires_grad=True)
    if which == "forward":
        work = lambda: forward(x, *shape)
    else:
        y = attention(x, *shape)
        dy = torch.rand(y.shape)
        work = lambda: torch.autograd.grad(y, x, dy, retain_graph=True)
    run_for(work, float(warm))
    print("%.9f" % statistics.median(run_for(work, float(timed))), flush=True)
