// The AVX-512 path: sixteen floats at a time, with FMA.
#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>
#include <string.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,prfchw"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,prfchw")
#endif
#pragma STDC FP_CONTRACT OFF
#define PATH 2
#include "path.h"
#include "kernels.h"
#if HALF
kernel_fn *const *const plimsoll_avx512_bf16 = table;
#else
kernel_fn *const *const plimsoll_avx512 = table;
const int64_t plimsoll_avx512_panel = PANEL;
#endif
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
