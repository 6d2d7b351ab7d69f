"""Times PyTorch's training step of a torchvision model on the CPU. Reads lines "steps" and answers each with the
median seconds of so many steps (forward, loss, backward, SGD with momentum), after one that does not count.

    torch_step.py MODEL BATCH IMAGE THREADS LAYOUT     LAYOUT: channels_last or nchw
"""
import statistics
import sys
import time

import torch
import torchvision

name, batch, image, threads, layout = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
torch.set_num_threads(threads)
torch.manual_seed(1)
options = {"aux_logits": False, "init_weights": False} if name == "inception_v3" else {}  # ours has one classifier
model = torchvision.models.get_model(name, **options)
x = torch.rand(batch, 3, image, image)
if layout == "channels_last":
    model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
y = torch.randint(0, 1000, (batch,))
optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9, weight_decay=1e-4)
loss_of = torch.nn.CrossEntropyLoss()


def step():
    optimizer.zero_grad(set_to_none=True)
    loss_of(model(x), y).backward()
    optimizer.step()


step()
print("torch", torch.__version__, flush=True)
for line in sys.stdin:
    times = []
    for _ in range(int(line)):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    print("%.9f" % statistics.median(times), flush=True)
