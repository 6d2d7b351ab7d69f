// Every kernel uses this file: the macros that declare one, element types, 16-byte loads and stores.
#ifndef PLIMSOLL_CUH
#define PLIMSOLL_CUH

#include "args.h"

#ifndef PLIMSOLL_EMULATED
#define KERNEL(name, args) extern "C" __global__ void name(const __grid_constant__ args a)
#define KERNEL_BOUNDS(name, args, threads, blocks) \
	extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ args a)
#define DYNAMIC_SHARED(type, name) extern __shared__ __align__(16) type name[]
// INSTRUCTION(text, outputs, inputs, clobbers...): inline PTX. The lists are in parentheses, of OPERAND(constraint, variable).
#define LIST(...) __VA_ARGS__
#define OPERAND(constraint, x) constraint(x)
#define INSTRUCTION(text, outputs, inputs, ...) asm volatile(text : LIST outputs : LIST inputs : __VA_ARGS__)
// The compiler may take it for granted that the address is one of global memory. Do not move such a pointer in a loop, move
// an offset: NVRTC 12.6 never ends on a pointer that a loop carries.
#define GLOBAL(type, address) ((type *)__cvta_global_to_generic(address))
#else
#define GLOBAL(type, address) ((type *)(address))
#endif

#define INLINE __device__ __forceinline__

// anew returns a value that the compiler takes for another one: what depends on it is computed once more, not kept in registers.
INLINE int anew(int v) {
#ifndef PLIMSOLL_EMULATED
	asm volatile("" : "+r"(v));
#endif
	return v;
}

// bf16 is the upper half of a float32.
struct bf16 {
	unsigned short bits;
};

// tf32 is a float32 that is a factor of products in TF32: it is rounded as it is read.
struct tf32 {
	unsigned bits; // before
};

// stored is the type of a product's result.
template <typename T> struct stored { typedef T type; };
template <> struct stored<tf32> { typedef float type; };

// Rounds to 10 bits of fraction, to nearest, ties away from zero, as cvt.rna.tf32.f32; a NaN stays one.
INLINE float tf32_of(float v) {
	unsigned u = __float_as_uint(v);
	u = (u & 0x7fffffffu) > 0x7f800000u ? u | 0x400000u : u + 0x1000u;
	return __uint_as_float(u & ~0x1fffu);
}

INLINE float to_float(float v) { return v; }
INLINE float to_float(tf32 v) { return tf32_of(__uint_as_float(v.bits)); }
INLINE float to_float(bf16 v) { return __uint_as_float((unsigned)v.bits << 16); }

// Rounds to nearest, ties to even; a NaN stays one.
INLINE unsigned bf16_bits(float v) {
	unsigned u = __float_as_uint(v);
	if ((u & 0x7fffffffu) > 0x7f800000u) return (u >> 16) | 0x40u;
	return (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
}

INLINE float rounded(float v, int to) {
	switch (to) {
	case TO_BF16: return __uint_as_float(bf16_bits(v) << 16);
	case TO_TF32: return tf32_of(v);
	}
	return v;
}

// weight_of returns a weight that lies in memory as float, or as bf16.
INLINE float weight_of(u64 weights, i64 at, int narrow) {
	return narrow ? to_float(GLOBAL(const bf16, weights)[at]) : GLOBAL(const float, weights)[at];
}

INLINE void put(float *p, float v) { *p = v; }
INLINE void put(bf16 *p, float v) { p->bits = (unsigned short)bf16_bits(v); }

// values are V elements of a tensor as float.
template <int V> struct values {
	float v[V];
};

INLINE float low_half(unsigned u) { return __uint_as_float(u << 16); }
INLINE float high_half(unsigned u) { return __uint_as_float(u & 0xffff0000u); }
INLINE unsigned both(float low, float high) { return bf16_bits(low) | bf16_bits(high) << 16; }

INLINE void load(values<1> &x, const float *p) { x.v[0] = *p; }
INLINE void load(values<1> &x, const bf16 *p) { x.v[0] = to_float(*p); }
INLINE void load(values<4> &x, const float *p) {
	float4 f = *(const float4 *)p;
	x.v[0] = f.x, x.v[1] = f.y, x.v[2] = f.z, x.v[3] = f.w;
}
INLINE void load(values<4> &x, const bf16 *p) {
	uint2 u = *(const uint2 *)p;
	x.v[0] = low_half(u.x), x.v[1] = high_half(u.x), x.v[2] = low_half(u.y), x.v[3] = high_half(u.y);
}
INLINE void load(values<8> &x, const bf16 *p) {
	uint4 u = *(const uint4 *)p;
	x.v[0] = low_half(u.x), x.v[1] = high_half(u.x), x.v[2] = low_half(u.y), x.v[3] = high_half(u.y);
	x.v[4] = low_half(u.z), x.v[5] = high_half(u.z), x.v[6] = low_half(u.w), x.v[7] = high_half(u.w);
}

// fixed: memory that nobody writes while the kernel runs.
INLINE void load_fixed(values<1> &x, const float *p) { x.v[0] = __ldg(p); }
INLINE void load_fixed(values<1> &x, const bf16 *p) { load(x, p); }
INLINE void load_fixed(values<4> &x, const float *p) {
	float4 f = __ldg((const float4 *)p);
	x.v[0] = f.x, x.v[1] = f.y, x.v[2] = f.z, x.v[3] = f.w;
}
INLINE void load_fixed(values<4> &x, const bf16 *p) { load(x, p); }
template <int V> INLINE void load_fixed(values<V> &x, const tf32 *p) {
	load_fixed(x, (const float *)p);
#pragma unroll
	for (int i = 0; i < V; i++) x.v[i] = tf32_of(x.v[i]);
}

INLINE void store(float *p, const values<1> &x) { *p = x.v[0]; }
INLINE void store(bf16 *p, const values<1> &x) { put(p, x.v[0]); }
INLINE void store(float *p, const values<4> &x) { *(float4 *)p = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]); }
INLINE void store(bf16 *p, const values<4> &x) { *(uint2 *)p = make_uint2(both(x.v[0], x.v[1]), both(x.v[2], x.v[3])); }
INLINE void store(bf16 *p, const values<8> &x) {
	*(uint4 *)p = make_uint4(both(x.v[0], x.v[1]), both(x.v[2], x.v[3]), both(x.v[4], x.v[5]), both(x.v[6], x.v[7]));
}

INLINE void store_pair(float *p, float x, float y) { *(float2 *)p = make_float2(x, y); }
INLINE void store_pair(bf16 *p, float x, float y) { *(unsigned *)p = both(x, y); }

// The same for the first n of them, n from 0 to V.
template <typename T, int V> INLINE void load_some(values<V> &x, const T *p, i64 n) {
	if (n >= V) return load(x, p);
	for (int i = 0; i < V; i++) x.v[i] = i < n ? to_float(p[i]) : 0;
}
template <typename T, int V> INLINE void store_some(T *p, const values<V> &x, i64 n) {
	if (n >= V) return store(p, x);
	for (int i = 0; i < V; i++)
		if (i < n) put(p + i, x.v[i]);
}
template <typename T, int V> INLINE void deposit(T *p, values<V> x, i64 n, int add) {
	if (add) {
		values<V> old;
		load_some(old, p, n);
#pragma unroll
		for (int i = 0; i < V; i++) x.v[i] += old.v[i];
	}
	store_some(p, x, n);
}

// load_floats and deposit_floats move V channels, as many as a vector of activations has, of float32 too.
template <int V> INLINE void load_floats(values<V> &x, const bf16 *p) { load(x, p); }
template <int V> INLINE void load_floats(values<V> &x, const float *p) {
	const int W = V < 4 ? V : 4;
#pragma unroll
	for (int k = 0; k < V; k += W) {
		values<W> part;
		load(part, p + k);
#pragma unroll
		for (int j = 0; j < W; j++) x.v[k + j] = part.v[j];
	}
}
template <int V> INLINE void deposit_floats(float *p, const values<V> &x, int add) {
	const int W = V < 4 ? V : 4;
#pragma unroll
	for (int k = 0; k < V; k += W) {
		values<W> part;
#pragma unroll
		for (int j = 0; j < W; j++) part.v[j] = x.v[k + j];
		deposit(p + k, part, W, add);
	}
}

// passed returns the part of a gradient that passes a ReLU with output y. If y is NaN, so is the result.
INLINE float passed(float dy, float y) { return y > 0 ? dy : (y != y ? y : 0); }

// wide is the number of elements in 16 bytes.
template <typename T> struct wide {
	enum { elements = 16 / sizeof(T) };
};

// Kernels that stream through memory: STREAM_THREADS threads take STREAM_VECTORS times 16 bytes each.
enum { STREAM_THREADS = 256, STREAM_VECTORS = 4 };

// stream calls f for the vectors of a block, of those that work on n elements.
template <int V, typename F> INLINE void stream(i64 block, i64 n, F f) {
	i64 first = (block * STREAM_VECTORS * STREAM_THREADS + threadIdx.x) * V;
#pragma unroll
	for (int k = 0; k < STREAM_VECTORS; k++) {
		i64 i = first + (i64)k * STREAM_THREADS * V;
		if (i < n) f(i, n - i);
	}
}
template <int V, typename F> INLINE void stream(i64 n, F f) { stream<V>(blockIdx.x, n, f); }

// The scalars of a step; kernels.Scalars.Put is their layout.
struct scalars {
	u64 seed, step, microbatch;
	float lr, scale;
	unsigned skip;
	u64 update;
};

#define INSTANCES(name, args) \
	KERNEL(name##_f32, struct args) { name<float>(a); } \
	KERNEL(name##_bf16, struct args) { name<bf16>(a); }

// Kernels of rows x channels: blocks of threadIdx.x channels (V each) and threadIdx.y rows. A multiprocessor has room for so many blocks.
#define VECTOR_INSTANCES(name, args, blocks) \
	KERNEL_BOUNDS(name##_f32_v1, struct args, 256, blocks) { name<float, 1>(a); } \
	KERNEL_BOUNDS(name##_f32_v4, struct args, 256, blocks) { name<float, 4>(a); } \
	KERNEL_BOUNDS(name##_bf16_v1, struct args, 256, blocks) { name<bf16, 1>(a); } \
	KERNEL_BOUNDS(name##_bf16_v8, struct args, 256, blocks) { name<bf16, 8>(a); }
#define CHANNEL_INSTANCES(name, args) VECTOR_INSTANCES(name, args, 2)
#define APPLY_INSTANCES(name, args) VECTOR_INSTANCES(name, args, 3) // that go through all elements: see applyBlocks in norm.go
#define SUM_INSTANCES(name, args) VECTOR_INSTANCES(name, args, 4)   // that sum rows: see sumBlocks

#endif
