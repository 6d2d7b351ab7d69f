// Causal self-attention on tensor cores, forward.
#include "flashforward.cuh"

FORWARD(forward, false, bf16, 32, 4)
FORWARD(forward, false, bf16, 64, 3)
FORWARD(forward, false, bf16, 96, 2)
FORWARD(forward, false, bf16, 128, 2)
FORWARD(forward, false, bf16, 256, 2)
FORWARD(forward, false, tf32, 32, 2)
FORWARD(forward, false, tf32, 64, 2)
FORWARD(forward, false, tf32, 96, 2)
FORWARD(forward, false, tf32, 128, 2)
