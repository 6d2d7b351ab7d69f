#include "job.h"

typedef void kernel_fn(const struct job *job, int64_t task, char *scratch);

extern kernel_fn *const *const plimsoll_plain;
extern const int64_t plimsoll_plain_panel;
#if defined(__x86_64__)
extern kernel_fn *const *const plimsoll_avx2, *const *const plimsoll_avx512;
extern const int64_t plimsoll_avx2_panel, plimsoll_avx512_panel;
#endif

static kernel_fn *const *table(int32_t path) {
#if defined(__x86_64__)
	if (path == AVX512) return plimsoll_avx512;
	if (path == AVX2) return plimsoll_avx2;
#endif
	(void)path;
	return plimsoll_plain;
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
	if (path == AVX512)
		return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
			__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
#endif
	return 0;
}

void plimsoll_work(const struct job *job, struct share *shares, int64_t workers, int64_t worker) {
	kernel_fn *fn = table(job->path)[job->kernel];
	char *scratch = (char *)(uintptr_t)job->scratch + worker * job->scratch_bytes;
	for (int64_t i = 0; i < workers; i++) {
		struct share *s = &shares[(worker + i) % workers];
		for (;;) {
			int64_t task = __atomic_fetch_add(&s->next, 1, __ATOMIC_RELAXED);
			if (task >= s->end) break;
			fn(job, task, scratch);
		}
	}
}

static inline void pause_(void) {
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

void plimsoll_spin(const int32_t *word, int32_t wanted, int64_t pauses) {
	for (int64_t i = 0; i < pauses && __atomic_load_n(word, __ATOMIC_ACQUIRE) != wanted; i++) pause_();
}
