// Self-attention on tensor cores, forward: causal or not, with terms of scores or without.
#include "flashforward.cuh"

// ANY(E, DIM, blocks): and how many blocks a multiprocessor is to have room for in its registers.
#define ANY(E, DIM, blocks) \
	KERNEL_BOUNDS(flash_forward_any_##E##_d##DIM, struct attention_args, FLASH_THREADS, blocks) { flash_forward<E, DIM, true>(a); }

ANY(bf16, 32, 3)
ANY(bf16, 64, 3)
ANY(bf16, 96, 2)
ANY(bf16, 128, 2)
ANY(bf16, 256, 2)
ANY(tf32, 32, 2)
ANY(tf32, 64, 2)
ANY(tf32, 96, 2)
ANY(tf32, 128, 2)
