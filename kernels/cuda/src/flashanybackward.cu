// Gradients of self-attention on tensor cores: causal or not, with terms of scores or without.
#include "flashbackward.cuh"

// GRADIENTS(E, D, queries, keys): and how many blocks of each a multiprocessor is to have room for in its registers.
#define GRADIENTS(E, D, queries, keys) \
	KERNEL_BOUNDS(flash_queries_any_##E##_d##D, struct attention_args, FLASH_THREADS, queries) { flash_gradients<E, D, OF_QUERIES, true>(a); } \
	KERNEL_BOUNDS(flash_keys_any_##E##_d##D, struct attention_args, FLASH_THREADS, keys) { flash_gradients<E, D, OF_BOTH, true>(a); } \
	KERNEL_BOUNDS(flash_terms_##E##_d##D, struct attention_args, FLASH_THREADS, 2) { flash_terms<E, D>(a); }

GRADIENTS(bf16, 32, 2, 2)
GRADIENTS(bf16, 64, 2, 2)
GRADIENTS(bf16, 96, 3, 2)
GRADIENTS(bf16, 128, 3, 2)
GRADIENTS(tf32, 32, 2, 2)
GRADIENTS(tf32, 64, 2, 2)
GRADIENTS(tf32, 96, 2, 2)
GRADIENTS(tf32, 128, 2, 2)

// WIDE(E, D): keys and values by themselves.
#define WIDE(E, D) \
	KERNEL_BOUNDS(flash_queries_any_##E##_d##D, struct attention_args, FLASH_THREADS, 1) { flash_gradients<E, D, OF_QUERIES, true>(a); } \
	KERNEL_BOUNDS(flash_keys_any_##E##_d##D, struct attention_args, FLASH_THREADS, 1) { flash_gradients<E, D, OF_KEYS, true>(a); } \
	KERNEL_BOUNDS(flash_values_any_##E##_d##D, struct attention_args, FLASH_THREADS, 1) { flash_gradients<E, D, OF_VALUES, true>(a); } \
	KERNEL_BOUNDS(flash_terms_##E##_d##D, struct attention_args, FLASH_THREADS, 1) { flash_terms<E, D>(a); }

WIDE(bf16, 256)
