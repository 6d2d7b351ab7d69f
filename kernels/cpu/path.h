// Every kernel is compiled once for each path (plain, AVX2, AVX-512) from the same source: the file that includes
// this one defines PATH and switches its compiler target. Files path_*_bf16.c define HALF, for activations in bfloat16; path_bf16.c defines
// DOT, too, where AVX512-BF16 multiplies pairs. FMA is explicit and the compiler contracts nothing, so all paths round alike in everything
// but the plain path's products in float32.
#include <math.h>
#include <string.h>

// Without masked registers, GCC makes vectors of a choice such as x < -87 ? 0 : p * q only if it may compute both sides. By default it fears
// a floating-point exception of the side that is not chosen. Nothing here reads the exceptions, and values do not change.
#if !defined(__clang__) && PATH < 2
#pragma GCC optimize("no-trapping-math")
#endif

#include "job.h"

#ifndef HALF
#define HALF 0
#endif
#ifndef DOT
#define DOT 0
#endif

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)

#if PATH == 2
enum { LANES = 16, STRIP = 14 };
#elif PATH == 1
enum { LANES = 8, STRIP = 6 };
#else
enum { LANES = 4, STRIP = 6 };
#endif
enum { PANEL = 2 * LANES };
enum { CACHE_LINE = 16 }; // floats

// vec is LANES floats at any address.
typedef float vec __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef float reg __attribute__((vector_size(LANES * 4)));
typedef uint32_t words __attribute__((vector_size(LANES * 4)));

// chosen is a in lanes where all bits of `where` are set, else b. larger is a > b ? a : b, lane by lane.
static inline reg chosen(words where, reg a, reg b) { return (reg)(((words)a & where) | ((words)b & ~where)); }

#if PATH == 2
static inline reg fma_(reg a, reg b, reg c) { return (reg)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
static inline reg splat(float x) { return (reg)_mm512_set1_ps(x); }
static inline reg root(reg x) { return (reg)_mm512_sqrt_ps((__m512)x); }
static inline reg larger(reg a, reg b) { return (reg)_mm512_max_ps((__m512)a, (__m512)b); }
#elif PATH == 1
static inline reg fma_(reg a, reg b, reg c) { return (reg)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
static inline reg splat(float x) { return (reg)_mm256_set1_ps(x); }
static inline reg root(reg x) { return (reg)_mm256_sqrt_ps((__m256)x); }
static inline reg larger(reg a, reg b) { return (reg)_mm256_max_ps((__m256)a, (__m256)b); }
#else
#if !HALF
static inline reg fma_(reg a, reg b, reg c) { return a * b + c; }
#elif defined(__FP_FAST_FMAF)
static inline reg fma_(reg a, reg b, reg c) {
	for (int i = 0; i < LANES; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
	return c;
}
#else
// fma_ rounds once, as the other paths do. A product of floats is exact as a double. Its sum is rounded to odd, so that rounding to float
// sees on which side of a tie the exact sum lies. See Boldo, Melquiond: Emulation of FMA and correctly rounded sums, 2008.
static inline reg fma_(reg a, reg b, reg c) {
	typedef double wide __attribute__((vector_size(LANES * 8)));
	typedef int64_t bits __attribute__((vector_size(LANES * 8)));
	wide product = __builtin_convertvector(a, wide) * __builtin_convertvector(b, wide), other = __builtin_convertvector(c, wide);
	wide sum = product + other, part = sum - product, lost = (product - (sum - part)) + (other - part);
	bits even = ((bits)sum & 1) - 1, inexact = (lost > 0) | (lost < 0), outward = (lost > 0) == (sum > 0);
	sum = (wide)((bits)sum + ((1 | ~outward) & inexact & even));
	return __builtin_convertvector(sum, reg);
}
#endif
static inline reg splat(float x) { return (reg){x, x, x, x}; }
static inline reg root(reg x) { return (reg){sqrtf(x[0]), sqrtf(x[1]), sqrtf(x[2]), sqrtf(x[3])}; }
static inline reg larger(reg a, reg b) { return chosen((words)(a > b), a, b); }
#endif

#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#define INDEPENDENT _Pragma("GCC ivdep") // arrays lie apart or exactly on each other
#endif

// elem is an element of activations and their gradients: float, or bfloat16 where HALF is 1, the upper half of a float. Its value is of(x).
// The function `to` rounds to the nearest, ties to even, as kernels.ToBFloat16 does. A `some` is LANES elements at any address.
INLINE uint16_t to_bf16(float x) {
	union { float f; uint32_t u; } v = {x};
	uint32_t nan = (v.u & 0x7fffffff) > 0x7f800000; // its payload's high bits alone could be those of an infinity
	return (uint16_t)(nan ? v.u >> 16 | 0x40 : (v.u + 0x7fff + (v.u >> 16 & 1)) >> 16);
}
#if HALF
typedef uint16_t elem;
INLINE float of(elem x) {
	union { uint32_t u; float f; } v = {(uint32_t)x << 16};
	return v.f;
}
INLINE elem to(float x) { return to_bf16(x); }
#else
typedef float elem;
INLINE float of(elem x) { return x; }
INLINE elem to(float x) { return x; }
#endif
typedef elem some __attribute__((vector_size(LANES * sizeof(elem)), aligned(sizeof(elem)), may_alias));

#define F(address) ((float *)(uintptr_t)(address))
#define E(address) ((elem *)(uintptr_t)(address))
#define D(address) ((double *)(uintptr_t)(address))
#define I(address) ((int32_t *)(uintptr_t)(address))

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
INLINE int64_t ceildiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// kernel_fn is an entry of the table: it does one task of a job.
typedef void kernel_fn(const struct job *job, int64_t task, char *scratch);
