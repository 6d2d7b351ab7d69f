// The AVX2 path: eight floats at a time, with FMA.
#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>
#include <string.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,prfchw"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,prfchw")
#endif
#pragma STDC FP_CONTRACT OFF
#define PATH 1
#include "path.h"
#include "kernels.h"
#if HALF
kernel_fn *const *const plimsoll_avx2_bf16 = table;
#else
kernel_fn *const *const plimsoll_avx2 = table;
const int64_t plimsoll_avx2_panel = PANEL;
#endif
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
