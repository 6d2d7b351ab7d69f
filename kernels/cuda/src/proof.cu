// The naive reference of convolutions and linear layers: one thread adds up the terms of one output, or of a slice of it, in
// float64, by the definition. It shares no tile, no packed weight and no walk with the kernels that it judges.
#include "plimsoll.cuh"

enum { FORWARD, BACKWARD_INPUT, BACKWARD_PARAMS };

// inside gives the input position of a tap along an axis and whether it is one.
INLINE bool inside(int out, int tap, int stride, int pad, int dilation, int size, int &in) {
	in = out * stride - pad + tap * dilation;
	return in >= 0 && in < size;
}

// reached gives the output position that a tap takes to an input position, and whether there is one.
INLINE bool reached(int in, int tap, int stride, int pad, int dilation, int size, int &out) {
	int far = in + pad - tap * dilation;
	out = far / stride;
	return far >= 0 && far % stride == 0 && out < size;
}

// weight returns the weight of an output channel, a tap and a channel of its group.
INLINE double weight(const proof_args &a, int o, int kh, int kw, int channel) {
	const geometry &g = a.g;
	float w = weight_of(a.weight, (((i64)o * g.kh + kh) * g.kw + kw) * (g.c / g.groups) + channel, a.narrow);
	return rounded(w, a.round);
}

template <typename T> INLINE double image(const proof_args &a, int n, int h, int w, int channel) {
	return to_float(GLOBAL(const T, a.image)[(((i64)n * a.g.h + h) * a.g.w + w) * a.g.c + channel]);
}

template <typename T> INLINE double gradient(const proof_args &a, int n, int oh, int ow, int o) {
	return to_float(GLOBAL(const T, a.gradient)[(((i64)n * a.g.oh + oh) * a.g.ow + ow) * a.g.o + o]);
}

// taken returns index % size and leaves index / size.
INLINE int taken(i64 &index, int size) {
	int rest = (int)(index % size);
	index /= size;
	return rest;
}

// Each pass: term k of the output at index i.
template <typename T> INLINE double forward_term(const proof_args &a, i64 i, i64 k) {
	const geometry &g = a.g;
	int o = taken(i, g.o), ow = taken(i, g.ow), oh = taken(i, g.oh), depth = g.c / g.groups, h, w;
	int channel = taken(k, depth), kw = taken(k, g.kw), kh = (int)k;
	if (!inside(oh, kh, g.sh, g.ph, g.dh, g.h, h) || !inside(ow, kw, g.sw, g.pw, g.dw, g.w, w)) return 0;
	return image<T>(a, (int)i, h, w, o / (g.o / g.groups) * depth + channel) * weight(a, o, kh, kw, channel);
}

template <typename T> INLINE double input_term(const proof_args &a, i64 i, i64 k) {
	const geometry &g = a.g;
	int c = taken(i, g.c), w = taken(i, g.w), h = taken(i, g.h), depth = g.c / g.groups, width = g.o / g.groups, oh, ow;
	int o = c / depth * width + taken(k, width), kw = taken(k, g.kw), kh = (int)k;
	if (!reached(h, kh, g.sh, g.ph, g.dh, g.oh, oh) || !reached(w, kw, g.sw, g.pw, g.dw, g.ow, ow)) return 0;
	return gradient<T>(a, (int)i, oh, ow, o) * weight(a, o, kh, kw, c % depth);
}

template <typename T> INLINE double params_term(const proof_args &a, i64 i, i64 k) {
	const geometry &g = a.g;
	int depth = g.c / g.groups, channel = taken(i, depth), kw = taken(i, g.kw), kh = taken(i, g.kh), o = (int)i, h, w;
	int ow = taken(k, g.ow), oh = taken(k, g.oh), n = (int)k;
	if (!inside(oh, kh, g.sh, g.ph, g.dh, g.h, h) || !inside(ow, kw, g.sw, g.pw, g.dw, g.w, w)) return 0;
	return image<T>(a, n, h, w, o / (g.o / g.groups) * depth + channel) * gradient<T>(a, n, oh, ow, o);
}

template <typename T> INLINE double term(const proof_args &a, i64 i, i64 k) {
	switch (a.pass) {
	case FORWARD: return forward_term<T>(a, i, k);
	case BACKWARD_INPUT: return input_term<T>(a, i, k);
	}
	return params_term<T>(a, i, k);
}

// bias_of returns the first term of an output.
INLINE double bias_of(const proof_args &a, i64 i) { return a.bias ? GLOBAL(const float, a.bias)[i % a.g.o] : 0.; }

// proof_sums: the sum of a slice of an output's terms, and the sum of their squares. grid: x samples, y slices.
template <typename T> INLINE void proof_sums(const proof_args &a) {
	i64 sample = (i64)blockIdx.x * blockDim.x + threadIdx.x, slice = blockIdx.y;
	if (sample >= a.samples) return;
	i64 i = GLOBAL(const i64, a.at)[sample], end = (slice + 1) * a.slice < a.terms ? (slice + 1) * a.slice : a.terms;
	double first = slice == 0 ? bias_of(a, i) : 0, sum = first, squares = first * first;
	for (i64 k = slice * a.slice; k < end; k++) {
		double t = term<T>(a, i, k);
		sum += t, squares += t * t;
	}
	double *to = GLOBAL(double, a.out) + (slice * a.samples + sample) * 2;
	to[0] = sum, to[1] = squares;
}
INSTANCES(proof_sums, proof_args)
KERNEL(proof_sums_tf32, struct proof_args) { proof_sums<tf32>(a); }

// naive: every output as a whole; out (+)= the sum. S is the type of the result.
template <typename T, typename S> INLINE void naive(const proof_args &a) {
	i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= a.samples) return;
	S *to = GLOBAL(S, a.out) + i;
	double sum = bias_of(a, i) + (a.add ? to_float(*to) : 0);
	for (i64 k = 0; k < a.terms; k++) sum += term<T>(a, i, k);
	put(to, (float)sum);
}
KERNEL(naive_f32_f32, struct proof_args) { naive<float, float>(a); }
KERNEL(naive_bf16_bf16, struct proof_args) { naive<bf16, bf16>(a); }
KERNEL(naive_bf16_f32, struct proof_args) { naive<bf16, float>(a); }
KERNEL(naive_tf32_f32, struct proof_args) { naive<tf32, float>(a); }

// proof_values: out[i] = in[at[i]] as float64.
template <typename T> INLINE void proof_values(const sample_args &a) {
	i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
	if (i < a.n) GLOBAL(double, a.out)[i] = to_float(GLOBAL(const T, a.in)[GLOBAL(const i64, a.at)[i]]);
}
INSTANCES(proof_values, sample_args)

// drawn is element i of the random data with a seed: from -1 to 1.
INLINE float drawn(u64 seed, i64 i) {
	u64 x = seed + (u64)i * 0x9e3779b97f4a7c15ull;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return (float)(int)((unsigned)(x >> 40) - (1u << 23)) * (1.f / (1 << 23));
}

// proof_fill: in holds n random elements.
template <typename T> INLINE void proof_fill(const draw_args &a) {
	i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
	if (i < a.n) put(GLOBAL(T, a.in) + i, drawn(a.seed, i));
}
INSTANCES(proof_fill, draw_args)

// proof_kept adds to the int at changed how many of the elements from first on are no longer what proof_fill left.
template <typename T> INLINE void proof_kept(const draw_args &a) {
	i64 i = a.first + (i64)blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= a.n) return;
	T want;
	put(&want, drawn(a.seed, i));
	if (!(to_float(GLOBAL(const T, a.in)[i]) == to_float(want))) atomicAdd(GLOBAL(int, a.changed), 1);
}
INSTANCES(proof_kept, draw_args)
