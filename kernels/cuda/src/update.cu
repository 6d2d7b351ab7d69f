// Optimizers, as PyTorch defines them, and the guard before them. Constants of a step are formed in float64 and rounded
// once. Everything here is float32, master weights, but for gradients that are bf16.
//
// sgd_update, adam_update and guard_squares have the bits of kernels/cpu: the same exact operations in the same order.
#include "plimsoll.cuh"

// The compilers of this file join no product and sum to one operation: see kernels/cuda/sources.
#define NO_CONTRACTION

// part_of returns which of count tensors a block, or a chunk, belongs to: the last whose blocks begin at or before it.
template <int N> INLINE int part_of(const int (&first)[N], int count, int block) {
	int low = 0;
	for (int high = count; high - low > 1;) {
		int middle = (low + high) / 2;
		if (first[middle] <= block) low = middle;
		else high = middle;
	}
	return low;
}

// put_param writes updated elements of a parameter, and of its copy in bf16, where there is one.
INLINE void put_param(u64 param, u64 copy, i64 i, const values<4> &w, i64 left) {
	store_some(GLOBAL(float, param) + i, w, left);
	if (copy) store_some(GLOBAL(bf16, copy) + i, w, left);
}

// load_either loads elements of bf16 where narrow, else of float32; store_either stores them.
INLINE void load_either(values<4> &x, u64 from, bool narrow, i64 i, i64 left) {
	if (narrow) load_some(x, GLOBAL(const bf16, from) + i, left);
	else load_some(x, GLOBAL(const float, from) + i, left);
}
INLINE void store_either(u64 to, bool narrow, i64 i, const values<4> &x, i64 left) {
	if (narrow) store_some(GLOBAL(bf16, to) + i, x, left);
	else store_some(GLOBAL(float, to) + i, x, left);
}

// sgd_update: see kernels.SGD. Without state0 there is no momentum.
KERNEL(sgd_update, struct update_args) {
	const scalars s = *GLOBAL(const scalars, a.scalars);
	if (s.skip) return;
	float decay = (float)a.weight_decay, momentum = (float)a.momentum, fresh = (float)(1 - a.dampening);
	int t = part_of(a.first, a.count, (int)blockIdx.x);
	bool first = s.update + a.earlier[t] == 0, moves = a.state0[t] != 0, narrow = a.narrow >> t & 1;
	stream<4>(blockIdx.x - a.first[t], a.n[t], [&](i64 i, i64 left) {
		values<4> w, g, v = {{0, 0, 0, 0}};
		load_some(w, GLOBAL(const float, a.param[t]) + i, left);
		load_either(g, a.grad[t], narrow, i, left);
		if (moves && !first) load_some(v, GLOBAL(const float, a.state0[t]) + i, left);
#pragma unroll
		for (int k = 0; k < 4; k++) {
			float d = g.v[k] * s.scale + decay * w.v[k];
			if (moves) {
				v.v[k] = first ? d : momentum * v.v[k] + fresh * d;
				d = a.nesterov ? d + momentum * v.v[k] : v.v[k];
			}
			w.v[k] -= s.lr * d;
		}
		if (moves) store_some(GLOBAL(float, a.state0[t]) + i, v, left);
		put_param(a.param[t], a.rounded[t], i, w, left);
	});
}

// twofold is the sum of two float64, the second at most half a unit in the last place of the first.
struct twofold {
	double high, low;
};

INLINE twofold times(const twofold &x, const twofold &y) {
	double high = x.high * y.high, low = fma(x.high, y.high, -high) + (x.high * y.low + x.low * y.high), sum = high + low;
	return {sum, low - (sum - high)};
}

// power is b to the power of t as kernels/cpu computes it: b*b, again and again, in twice the precision.
INLINE double power(double b, u64 t) {
	twofold whole = {1, 0}, square = {b, 0};
	for (;; square = times(square, square)) {
		if (t & 1) whole = times(whole, square);
		if (!(t >>= 1)) return whole.high;
	}
}

// adam_update: see kernels.Adam; decoupled is AdamW. The first thread forms what the update's number decides.
KERNEL(adam_update, struct update_args) {
	__shared__ float formed[3];
	int t = part_of(a.first, a.count, (int)blockIdx.x);
	const scalars s = *GLOBAL(const scalars, a.scalars);
	if (s.skip) return;
	if (threadIdx.x == 0) {
		u64 number = s.update + a.earlier[t] + 1;
		formed[0] = (float)((double)s.lr / (1 - power(a.beta1, number)));
		formed[1] = (float)sqrt(1 - power(a.beta2, number));
		formed[2] = a.decoupled ? (float)(1 - (double)s.lr * a.weight_decay) : 1.0f;
	}
	__syncthreads();
	float size = formed[0], correction = formed[1], shrink = formed[2];
	float l2 = a.decoupled ? 0 : (float)a.weight_decay, beta2 = (float)a.beta2, epsilon = (float)a.epsilon;
	float fresh1 = (float)(1 - a.beta1), fresh2 = (float)(1 - a.beta2);
	bool narrow = a.narrow >> t & 1;
	stream<4>(blockIdx.x - a.first[t], a.n[t], [&](i64 i, i64 left) {
		values<4> w, g, m, v;
		load_some(w, GLOBAL(const float, a.param[t]) + i, left);
		load_either(g, a.grad[t], narrow, i, left);
		load_some(m, GLOBAL(const float, a.state0[t]) + i, left);
		load_some(v, GLOBAL(const float, a.state1[t]) + i, left);
#pragma unroll
		for (int k = 0; k < 4; k++) {
			float d = g.v[k] * s.scale + w.v[k] * l2;
			m.v[k] += (d - m.v[k]) * fresh1;
			v.v[k] = v.v[k] * beta2 + (d * d) * fresh2;
			w.v[k] = w.v[k] * shrink - m.v[k] / (sqrtf(v.v[k]) / correction + epsilon) * size;
		}
		store_some(GLOBAL(float, a.state0[t]) + i, m, left);
		store_some(GLOBAL(float, a.state1[t]) + i, v, left);
		put_param(a.param[t], a.rounded[t], i, w, left);
	});
}

enum { GUARD_THREADS = 256, GUARD_LANES = 8 };

// block_sum returns, to thread 0, the sum of what the threads hold, by halves.
INLINE double block_sum(double mine) {
	__shared__ double sums[GUARD_THREADS];
	sums[threadIdx.x] = mine;
	__syncthreads();
	for (int half = GUARD_THREADS / 2; half > 0; half /= 2) {
		if ((int)threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
		__syncthreads();
	}
	return sums[0];
}

// squares_of returns a thread's share of the sum of the squares of n values from one on.
INLINE double squares_of(u64 x, bool narrow, i64 from, i64 n) {
	double sum = 0;
	for (i64 i = threadIdx.x * 4; i < n; i += GUARD_THREADS * 4) {
		values<4> g;
		load_either(g, x, narrow, from + i, n - i);
#pragma unroll
		for (int k = 0; k < 4; k++) sum += (double)g.v[k] * g.v[k];
	}
	return sum;
}

// squares_of_lane returns the sum that one of GUARD_LANES threads makes of a chunk's squares. The thread takes every GUARD_LANES-th value;
// the first one takes the rest, too.
template <typename T> INLINE double squares_of_lane(const T *grad, i64 left, int lane) {
	double sum = 0;
	i64 whole = left / GUARD_LANES * GUARD_LANES;
#pragma unroll 16
	for (i64 i = lane; i < whole; i += GUARD_LANES) {
		double g = to_float(grad[i]);
		sum += g * g;
	}
	for (i64 i = whole; i < left && lane == 0; i++) {
		double g = to_float(grad[i]);
		sum += g * g;
	}
	return sum;
}

INLINE double squares_of_lane(const guard_args &a, int chunk, int lane) {
	int t = part_of(a.first, a.count, chunk);
	i64 from = (i64)(chunk - a.first[t]) * a.chunk, left = a.n[t] - from;
	if (left > a.chunk) left = a.chunk;
	if (a.narrow[t / 64] >> t % 64 & 1) return squares_of_lane(GLOBAL(const bf16, a.grad[t]) + from, left, lane);
	return squares_of_lane(GLOBAL(const float, a.grad[t]) + from, left, lane);
}

// guard_squares: GUARD_LANES threads measure one chunk of one gradient. Sums have the order of kernels/cpu, and its bits.
KERNEL(guard_squares, struct guard_args) {
	__shared__ double sums[GUARD_THREADS];
	int lane = threadIdx.x % GUARD_LANES, chunk = (int)(blockIdx.x * (GUARD_THREADS / GUARD_LANES) + threadIdx.x / GUARD_LANES);
	bool works = chunk < a.first[a.count];
	sums[threadIdx.x] = works ? squares_of_lane(a, chunk, lane) : 0;
	__syncthreads();
	for (int apart = 1; apart < GUARD_LANES; apart *= 2) {
		if (lane % (2 * apart) == 0) sums[threadIdx.x] += sums[threadIdx.x + apart];
		__syncthreads();
	}
	if (works && lane == 0) GLOBAL(double, a.partials)[chunk] = sums[threadIdx.x];
}

// muon_begin moves the momentum, and writes what is to be orthogonalized: nothing, of a step that is skipped.
KERNEL(muon_begin, struct muon_args) {
	const scalars s = *GLOBAL(const scalars, a.scalars);
	float beta = (float)a.beta, fresh = (float)(1 - a.beta);
	stream<4>(a.n, [&](i64 i, i64 left) {
		values<4> g, v, x = {{0, 0, 0, 0}};
		if (!s.skip) {
			load_either(g, a.grad, a.narrow != 0, i, left);
			load_some(v, GLOBAL(const float, a.momentum) + i, left);
#pragma unroll
			for (int k = 0; k < 4; k++) {
				float d = g.v[k] * s.scale;
				v.v[k] += (d - v.v[k]) * fresh;
				x.v[k] = d + beta * (v.v[k] - d);
			}
			store_some(GLOBAL(float, a.momentum) + i, v, left);
		}
		store_either(a.x, a.half != 0, i, x, left);
	});
}

// muon_squares: a block sums the squares of one chunk of x.
KERNEL(muon_squares, struct muon_args) {
	i64 from = (i64)blockIdx.x * a.chunk, left = a.n - from;
	if (left > a.chunk) left = a.chunk;
	double sum = block_sum(squares_of(a.x, a.half != 0, from, left));
	if (threadIdx.x == 0) GLOBAL(double, a.partials)[blockIdx.x] = sum;
}

// muon_normalize divides x by its norm, from the partial sums.
KERNEL(muon_normalize, struct muon_args) {
	__shared__ float formed;
	if (threadIdx.x == 0) {
		double squares = 0;
		for (i64 i = 0; i < a.parts; i++) squares += GLOBAL(const double, a.partials)[i];
		double norm = sqrt(squares);
		formed = (float)(1 / (norm > a.tiny ? norm : a.tiny));
	}
	__syncthreads();
	float factor = formed;
	stream<4>(a.n, [&](i64 i, i64 left) {
		values<4> x;
		load_either(x, a.x, a.half != 0, i, left);
#pragma unroll
		for (int k = 0; k < 4; k++) x.v[k] *= factor;
		store_either(a.x, a.half != 0, i, x, left);
	});
}

// muon_polynomial makes a + b*A + c*A*A of A*A.
KERNEL(muon_polynomial, struct muon_args) {
	float f0 = (float)a.a, f1 = (float)a.b, f2 = (float)a.c;
	stream<4>(a.side * a.side, [&](i64 i, i64 left) {
		values<4> square, again;
		load_either(square, a.square, a.half != 0, i, left);
		load_either(again, a.again, a.half != 0, i, left);
#pragma unroll
		for (int k = 0; k < 4; k++) again.v[k] = f1 * square.v[k] + f2 * again.v[k] + ((i + k) % (a.side + 1) == 0 ? f0 : 0);
		store_either(a.again, a.half != 0, i, again, left);
	});
}

// muon_end moves the parameter by what is orthogonal.
KERNEL(muon_end, struct muon_args) {
	const scalars s = *GLOBAL(const scalars, a.scalars);
	if (s.skip) return;
	float shrink = (float)(1 - (double)s.lr * a.weight_decay), size = (float)((double)s.lr * a.rate);
	stream<4>(a.n, [&](i64 i, i64 left) {
		values<4> w, x;
		load_some(w, GLOBAL(const float, a.param) + i, left);
		load_either(x, a.x, a.half != 0, i, left);
#pragma unroll
		for (int k = 0; k < 4; k++) w.v[k] = w.v[k] * shrink - size * x.v[k];
		put_param(a.param, a.rounded, i, w, left);
	});
}

// guard_verdict writes the norm and judges it; one block.
KERNEL(guard_verdict, struct verdict_args) {
	double sum = 0;
	for (i64 i = threadIdx.x; i < a.parts; i += GUARD_THREADS) sum += GLOBAL(const double, a.partials)[i];
	sum = block_sum(sum);
	if (threadIdx.x > 0) return;
	scalars *s = GLOBAL(scalars, a.scalars);
	double norm = sqrt(sum) * s->scale;
	*GLOBAL(float, a.norm) = (float)norm;
	if (!(norm - norm == 0)) s->skip = 1;
	if (a.max_norm > 0 && norm > a.max_norm) s->scale *= (float)(a.max_norm / (norm + 1e-6));
}
