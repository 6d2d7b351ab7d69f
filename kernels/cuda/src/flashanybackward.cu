// Gradients of self-attention on tensor cores: causal or not, with terms of scores or without.
#include "flashbackward.cuh"

GRADIENTS(queries_any, OF_QUERIES, true, bf16, 32, 2)
GRADIENTS(queries_any, OF_QUERIES, true, bf16, 64, 2)
GRADIENTS(queries_any, OF_QUERIES, true, bf16, 96, 3)
GRADIENTS(queries_any, OF_QUERIES, true, bf16, 128, 3)
GRADIENTS(queries_any, OF_QUERIES, true, tf32, 32, 2)
GRADIENTS(queries_any, OF_QUERIES, true, tf32, 64, 2)
GRADIENTS(queries_any, OF_QUERIES, true, tf32, 96, 2)
GRADIENTS(queries_any, OF_QUERIES, true, tf32, 128, 2)
GRADIENTS(keys_any, OF_BOTH, true, bf16, 32, 2)
GRADIENTS(keys_any, OF_BOTH, true, bf16, 64, 2)
GRADIENTS(keys_any, OF_BOTH, true, bf16, 96, 2)
GRADIENTS(keys_any, OF_BOTH, true, bf16, 128, 2)
GRADIENTS(keys_any, OF_BOTH, true, tf32, 32, 2)
GRADIENTS(keys_any, OF_BOTH, true, tf32, 64, 2)
GRADIENTS(keys_any, OF_BOTH, true, tf32, 96, 2)
GRADIENTS(keys_any, OF_BOTH, true, tf32, 128, 2)
GRADIENTS(queries_any, OF_QUERIES, true, bf16, 256, 1)
GRADIENTS(keys_any, OF_KEYS, true, bf16, 256, 1)
GRADIENTS(values_any, OF_VALUES, true, bf16, 256, 1)

// TERMS(E, D, blocks) is a kernel of the gradients of terms.
#define TERMS(E, D, blocks) KERNEL_BOUNDS(flash_terms_##E##_d##D, struct attention_args, FLASH_THREADS, blocks) { flash_terms<E, D>(a); }

TERMS(bf16, 32, 2)
TERMS(bf16, 64, 2)
TERMS(bf16, 96, 2)
TERMS(bf16, 128, 2)
TERMS(tf32, 32, 2)
TERMS(tf32, 64, 2)
TERMS(tf32, 96, 2)
TERMS(tf32, 128, 2)
TERMS(bf16, 256, 1)
