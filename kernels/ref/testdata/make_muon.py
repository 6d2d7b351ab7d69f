"""Writes muon.json: steps of torch.optim.Muon, in float32 and as it is, for TestMuonIsPyTorchs of package ref.

    python3 make_muon.py > muon.json        (PyTorch 2.9 or newer)

PyTorch iterates in bfloat16; under "float32" its own code runs with float32 in the place of that type.
"""
import json

import torch

BFLOAT16 = torch.bfloat16
RATE, DECAY, MOMENTUM, STEPS = 0.1, 0.05, 0.95, 3


def steps(rows, columns, dtype):
    torch.manual_seed(rows * 100 + columns)
    param = torch.nn.Parameter(torch.randn(rows, columns))
    optimizer = torch.optim.Muon([param], lr=RATE, weight_decay=DECAY, momentum=MOMENTUM, nesterov=True, adjust_lr_fn="match_rms_adamw")
    start, grads = param.detach().flatten().tolist(), []
    torch.bfloat16 = dtype
    for _ in range(STEPS):
        param.grad = torch.randn(rows, columns)
        grads.append(param.grad.flatten().tolist())
        optimizer.step()
    torch.bfloat16 = BFLOAT16
    momentum = optimizer.state[param]["momentum_buffer"]
    return start, grads, param.detach().flatten().tolist(), momentum.flatten().tolist()


def main():
    cases = []
    for rows, columns in ((4, 4), (3, 7), (8, 2), (1, 6), (5, 1)):
        start, grads, after, momentum = steps(rows, columns, torch.float32)
        rounded = steps(rows, columns, BFLOAT16)[2]
        cases.append(dict(Rows=rows, Columns=columns, Start=start, Grads=grads, After=after, Momentum=momentum, BFloat16=rounded))
    print(json.dumps(dict(Torch=torch.__version__, Rate=RATE, Decay=DECAY, Beta=MOMENTUM, Cases=cases)))


if __name__ == "__main__":
    main()
