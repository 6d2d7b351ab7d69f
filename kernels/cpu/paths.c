#include "job.h"

extern kernel_fn *const *const plimsoll_plain, *const *const plimsoll_plain_bf16;
extern const int64_t plimsoll_plain_panel;
#if defined(__x86_64__)
extern kernel_fn *const *const plimsoll_avx2, *const *const plimsoll_avx512, *const *const plimsoll_avx2_bf16, *const *const plimsoll_avx512_bf16;
extern const int64_t plimsoll_avx2_panel, plimsoll_avx512_panel;
#endif
#if KNOWS_BF16
extern kernel_fn *const *const plimsoll_bf16;
#endif

kernel_fn *const *plimsoll_kernels(int32_t path) {
#if KNOWS_BF16
	if (path == HALVES) return plimsoll_bf16;
#endif
#if defined(__x86_64__)
	if (path == AVX512) return plimsoll_avx512;
	if (path == AVX2) return plimsoll_avx2;
	if (path == HALF_AVX512) return plimsoll_avx512_bf16;
	if (path == HALF_AVX2) return plimsoll_avx2_bf16;
#endif
	return path == HALF_PLAIN ? plimsoll_plain_bf16 : plimsoll_plain;
}

int64_t plimsoll_panel(int32_t path) {
#if defined(__x86_64__)
	if (path == AVX512) return plimsoll_avx512_panel;
	if (path == AVX2) return plimsoll_avx2_panel;
#endif
	(void)path;
	return plimsoll_plain_panel;
}

int plimsoll_has(int32_t path) {
	if (path == PLAIN) return 1;
#if defined(__x86_64__)
	__builtin_cpu_init();
	if (path == AVX2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#if KNOWS_BF16
	if (path == HALVES) return plimsoll_has(AVX512) && __builtin_cpu_supports("avx512bf16");
#endif
	if (path == AVX512)
		return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
			__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
#endif
	return 0;
}
