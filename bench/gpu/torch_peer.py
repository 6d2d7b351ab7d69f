"""Times PyTorch on one device and prints a JSON object, on a line of its own, for every job.

    torch_peer.py [--device cuda] [--steps 20] [--warmup 5] [--memory BYTES] JOB...

    JOB = MODEL:IMAGE:BATCH:PRECISION:MODE[:SEGMENTS]      resnet50:224:64:tf32:eager, resnet101:1000:8:bf16:checkpoint:4
          gpt2:1024:16:bf16:eager                        of text: the tokens of a sample, and samples
          matmul:N:1:PRECISION:eager                       a product of two N x N matrices

precision  fp32, tf32 or bf16 (models: autocast, float32 weights and bfloat16 activations)
mode       eager, compile (torch.compile), checkpoint (checkpoint_sequential over the model's blocks) or save_on_cpu (what the
           backward reads goes to page-locked host memory: torch.autograd.graph.save_on_cpu)

A step is zero_grad, forward, cross entropy, backward and SGD with momentum; tensors are channels last. Of GPT-2, written here with
PyTorch's own attention (scaled_dot_product_attention), the optimizer is its fused AdamW. The batch is on
the device already. Times are medians of steps, by CUDA events; peak_bytes is what the allocator held at most during a
step. --memory is the most that the allocator may take. A job that fails gives an object with "error". --device cpu checks the
script.
"""
import argparse
import contextlib
import gc
import json
import statistics
import time

import torch
import torch.nn.functional as F
import torchvision
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential

CLASSES = 1000
VOCABULARY = 50257
TEXT = {"gpt2": (12, 768), "gpt2-medium": (24, 1024), "gpt2-large": (36, 1280), "gpt2-1-64": (1, 64)}  # blocks, width
MODES = ("eager", "compile", "checkpoint", "save_on_cpu")


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("jobs", nargs="+", type=Job, metavar="JOB")
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--warmup", type=int, default=5)
    p.add_argument("--device", default="cuda")
    p.add_argument("--memory", type=int, default=0)
    return p.parse_args()


class Job:
    """One line of the command: what is timed, and how."""

    def __init__(self, text):
        parts = text.split(":")
        if len(parts) not in (5, 6):
            raise argparse.ArgumentTypeError(f"{text}: want MODEL:IMAGE:BATCH:PRECISION:MODE[:SEGMENTS]")
        self.text = text
        self.model, self.image, self.batch = parts[0], int(parts[1]), int(parts[2])
        self.precision, self.mode = parts[3], parts[4]
        self.segments = int(parts[5]) if len(parts) == 6 else 4
        if self.precision not in ("fp32", "tf32", "bf16") or self.mode not in MODES:
            raise argparse.ArgumentTypeError(f"{text}: precision is fp32, tf32 or bf16, mode one of {', '.join(MODES)}")


class Device:
    """Where jobs run, and its clock."""

    def __init__(self, name):
        self.name, self.kind = name, name.split(":")[0]
        self.cuda = self.kind == "cuda"
        self.model = torch.cuda.get_device_name(name) if self.cuda else "cpu"
        if self.cuda:
            torch.cuda.set_device(name)

    def limit(self, memory):
        """Lets the allocator have no more than so many bytes."""
        if self.cuda and memory:
            whole = torch.cuda.get_device_properties(self.name).total_memory
            torch.cuda.set_per_process_memory_fraction(min(memory / whole, 1.0), self.name)

    def mark(self):
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, a, b):
        if not self.cuda:
            return b - a
        b.synchronize()
        return a.elapsed_time(b) / 1e3

    def median(self, work, steps):
        """The median seconds of work, called steps times. Marks are read when all is issued, so that nothing waits."""
        marks = [self.mark()]
        for _ in range(steps):
            work()
            marks.append(self.mark())
        return statistics.median([self.seconds(a, b) for a, b in zip(marks, marks[1:])])

    def fresh(self):
        """Forgets the memory of the job before."""
        gc.collect()
        if self.cuda:
            torch.cuda.empty_cache()

    def settle(self):
        """Waits for what was issued and begins to measure memory."""
        if self.cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()

    def peak(self):
        return torch.cuda.max_memory_allocated() if self.cuda else 0


def blocks(model):
    """The model as a list of modules to run one after the other: the chain that checkpoint_sequential cuts."""
    if hasattr(model, "layer1"):  # ResNet
        stem = torch.nn.Sequential(model.conv1, model.bn1, model.relu, model.maxpool)
        body = [b for stage in (model.layer1, model.layer2, model.layer3, model.layer4) for b in stage]
        return [stem, *body, torch.nn.Sequential(model.avgpool, torch.nn.Flatten(), model.fc)]
    features = list(model.features)  # DenseNet
    head = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), model.classifier)
    return [*features, head]


class Block(nn.Module):
    """A block of GPT-2, with heads of 64 channels."""

    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, t, 3, c // 64, 64).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(y.transpose(1, 2).reshape(n, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT2(nn.Module):
    """GPT-2 without dropout; the head has the weights of the embedding."""

    def __init__(self, blocks, width, length):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(length, width)
        self.blocks, self.norm = nn.ModuleList(Block(width) for _ in range(blocks)), nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x):
        h = self.tokens(x) + self.places.weight[: x.shape[1]]
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


def text_training(job, device):
    """A function that makes one training step of a language model."""
    model = GPT2(*TEXT[job.model], job.image).to(device.name)
    x, y = (torch.randint(0, VOCABULARY, (job.batch, job.image), device=device.name) for _ in range(2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, fused=device.cuda)
    forward = torch.compile(model) if job.mode == "compile" else model
    bf16 = job.precision == "bf16"

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.kind, dtype=torch.bfloat16) if bf16 else contextlib.nullcontext():
            loss = F.cross_entropy(forward(x).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()

    return step


def training(job, device):
    """A function that makes one training step."""
    if job.model in TEXT:
        return text_training(job, device)
    model = torchvision.models.get_model(job.model, num_classes=CLASSES).to(device.name, memory_format=torch.channels_last)
    x = torch.randn(job.batch, 3, job.image, job.image, device=device.name).to(memory_format=torch.channels_last)
    y = torch.randint(0, CLASSES, (job.batch,), device=device.name)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    loss_of = torch.nn.CrossEntropyLoss()
    forward = model
    if job.mode == "compile":
        forward = torch.compile(model)
    elif job.mode == "checkpoint":
        chain = blocks(model)

        def forward(x):
            return checkpoint_sequential(chain, min(job.segments, len(chain)), x, use_reentrant=False)

    bf16 = job.precision == "bf16"

    def saving():
        if job.mode == "save_on_cpu":
            return torch.autograd.graph.save_on_cpu(pin_memory=device.cuda)
        return contextlib.nullcontext()

    def step():
        optimizer.zero_grad(set_to_none=True)
        with saving(), torch.autocast(device.kind, dtype=torch.bfloat16) if bf16 else contextlib.nullcontext():
            loss = loss_of(forward(x), y)
        loss.backward()
        optimizer.step()

    return step


def product(job, device):
    """A function that multiplies two random matrices."""
    dtype = torch.bfloat16 if job.precision == "bf16" else torch.float32
    a, b, c = (torch.randn(job.image, job.image, device=device.name, dtype=dtype) for _ in range(3))
    return lambda: torch.matmul(a, b, out=c)


def run(job, device, warmup, steps):
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = job.precision != "fp32"
    torch.backends.cudnn.benchmark = True
    matmul = job.model == "matmul"
    work = (product if matmul else training)(job, device)
    for _ in range(warmup):
        work()
    device.settle()
    seconds = device.median(work, steps)
    row = {"step_s": seconds, "peak_bytes": device.peak()}
    if matmul:
        return {**row, "operations": 2 * job.image**3}
    return {**row, "images_per_s": job.batch / seconds}


def main():
    o = arguments()
    device = Device(o.device)
    device.limit(o.memory)
    for job in o.jobs:
        row = {"job": job.text, "system": f"PyTorch {torch.__version__}", "device": device.model}
        try:
            row |= run(job, device, o.warmup, o.steps)
        except Exception as e:  # noqa: BLE001: whatever it is, the next job may work
            row["error"] = f"{type(e).__name__}: {e}".split("\n")[0]
        torch._dynamo.reset()
        device.fresh()
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
