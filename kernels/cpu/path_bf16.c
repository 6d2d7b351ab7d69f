// The AVX-512 path with activations in bfloat16: products by AVX512-BF16, everything else in float32 between a load and a store.
#include "job.h"
#if KNOWS_BF16
#include <immintrin.h>
#include <math.h>
#include <string.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx512bf16,avx2,fma,prfchw"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx512bf16,avx2,fma,prfchw")
#endif
#pragma STDC FP_CONTRACT OFF
#define PATH 2
#define HALF 1
#define DOT 1
#include "path.h"
#include "kernels.h"
kernel_fn *const *const plimsoll_bf16 = table;
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
