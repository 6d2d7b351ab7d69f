// Causal self-attention on tensor cores, forward.
#include "flashforward.cuh"

// FLASH(E, DIM, blocks): and how many blocks a multiprocessor is to have room for in its registers.
#define FLASH(E, DIM, blocks) \
	KERNEL_BOUNDS(flash_forward_##E##_d##DIM, struct attention_args, FLASH_THREADS, blocks) { flash_forward<E, DIM, false>(a); }

FLASH(bf16, 32, 4)
FLASH(bf16, 64, 3)
FLASH(bf16, 96, 2)
FLASH(bf16, 128, 2)
FLASH(bf16, 256, 2)
FLASH(tf32, 32, 2)
FLASH(tf32, 64, 2)
FLASH(tf32, 96, 2)
FLASH(tf32, 128, 2)
