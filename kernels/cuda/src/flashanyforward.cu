// Self-attention on tensor cores, forward: causal or not, with terms of scores or without.
#include "flashforward.cuh"

FORWARD(forward_any, true, bf16, 32, 3)
FORWARD(forward_any, true, bf16, 64, 3)
FORWARD(forward_any, true, bf16, 96, 2)
FORWARD(forward_any, true, bf16, 128, 2)
FORWARD(forward_any, true, bf16, 256, 2)
FORWARD(forward_any, true, tf32, 32, 2)
FORWARD(forward_any, true, tf32, 64, 2)
FORWARD(forward_any, true, tf32, 96, 2)
FORWARD(forward_any, true, tf32, 128, 2)
