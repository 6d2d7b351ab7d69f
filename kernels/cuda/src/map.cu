// Element by element, and copies of strips.
#include "plimsoll.cuh"

// relu_forward: out = max(a, 0), at most as much as there is a maximum; a NaN passes. Reads n, writes n.
template <typename T> INLINE void relu_forward(const map_args &a) {
	const int V = wide<T>::elements;
	stream<V>(a.n, [&](i64 i, i64 left) {
		values<V> x;
		load_some(x, GLOBAL(const T, a.a) + i, left);
#pragma unroll
		for (int k = 0; k < V; k++) {
			x.v[k] = x.v[k] < 0 ? 0 : x.v[k];
			if (a.most > 0 && x.v[k] > a.most) x.v[k] = a.most;
		}
		store_some(GLOBAL(T, a.out) + i, x, left);
	});
}
INSTANCES(relu_forward, map_args)

// relu_backward: out (+)= a where the output b is positive and less than the maximum, 0 where it is not, NaN where it is none.
template <typename T> INLINE void relu_backward(const map_args &a) {
	const int V = wide<T>::elements;
	stream<V>(a.n, [&](i64 i, i64 left) {
		values<V> dy, y;
		load_some(dy, GLOBAL(const T, a.a) + i, left);
		load_some(y, GLOBAL(const T, a.b) + i, left);
#pragma unroll
		for (int k = 0; k < V; k++) dy.v[k] = a.most > 0 && y.v[k] >= a.most ? 0 : passed(dy.v[k], y.v[k]);
		deposit(GLOBAL(T, a.out) + i, dy, left, a.add);
	});
}
INSTANCES(relu_backward, map_args)

// sum: out = a + b.
template <typename T> INLINE void sum(const map_args &a) {
	const int V = wide<T>::elements;
	stream<V>(a.n, [&](i64 i, i64 left) {
		values<V> x, y;
		load_some(x, GLOBAL(const T, a.a) + i, left);
		load_some(y, GLOBAL(const T, a.b) + i, left);
#pragma unroll
		for (int k = 0; k < V; k++) x.v[k] += y.v[k];
		store_some(GLOBAL(T, a.out) + i, x, left);
	});
}
INSTANCES(sum, map_args)

// pass: out (+)= a.
template <typename T> INLINE void pass(const map_args &a) {
	const int V = wide<T>::elements;
	stream<V>(a.n, [&](i64 i, i64 left) {
		values<V> x;
		load_some(x, GLOBAL(const T, a.a) + i, left);
		deposit(GLOBAL(T, a.out) + i, x, left, a.add);
	});
}
INSTANCES(pass, map_args)

// cast: out (+)= a, from one type to another.
template <typename From, typename To> INLINE void cast(const map_args &a) {
	stream<4>(a.n, [&](i64 i, i64 left) {
		values<4> x;
		load_some(x, GLOBAL(const From, a.a) + i, left);
		deposit(GLOBAL(To, a.out) + i, x, left, a.add);
	});
}
KERNEL(cast_f32_bf16, struct map_args) { cast<float, bf16>(a); }
KERNEL(cast_bf16_f32, struct map_args) { cast<bf16, float>(a); }

// lookup: a thread takes 4 bytes at a time, one load.
KERNEL(lookup, struct lookup_args) {
	stream<4>(a.n, [&](i64 i, i64 left) {
		const unsigned char *x = GLOBAL(const unsigned char, a.x) + i;
		const float *table = GLOBAL(const float, a.table);
		unsigned four = 0;
		if (left >= 4)
			four = *(const unsigned *)x;
		else
			for (int k = 0; k < left; k++) four |= (unsigned)x[k] << 8 * k;
		int c = (int)(i % a.channels);
		values<4> y;
#pragma unroll
		for (int k = 0; k < 4; k++) {
			y.v[k] = __ldg(table + 256 * c + (four >> 8 * k & 255));
			if (++c == a.channels) c = 0;
		}
		store_some(GLOBAL(float, a.y) + i, y, left);
	});
}

// strip: a block takes channels of some rows; without an input it clears them.
template <typename T, int V> INLINE void strip(const strip_args &a) {
	int c = (blockIdx.x * blockDim.x + threadIdx.x) * V;
	if (c >= a.width) return;
	for (i64 r = (i64)blockIdx.y * blockDim.y + threadIdx.y; r < a.rows; r += (i64)gridDim.y * blockDim.y) {
		values<V> x = {};
		if (a.in) load(x, GLOBAL(const T, a.in) + r * a.in_stride + c);
		deposit(GLOBAL(T, a.out) + r * a.out_stride + c, x, V, a.add);
	}
}
CHANNEL_INSTANCES(strip, strip_args)

// Dropout with Philox4x32-10 (Salmon, Moraes, Dror, Shaw, SC 2011); kernels.DropoutStream is its definition.

struct words {
	unsigned w[4];
};

INLINE words philox(u64 low, u64 high, u64 key) {
	unsigned c0 = (unsigned)low, c1 = (unsigned)(low >> 32), c2 = (unsigned)high, c3 = (unsigned)(high >> 32);
	unsigned k0 = (unsigned)key, k1 = (unsigned)(key >> 32);
#pragma unroll
	for (int round = 0; round < 10; round++) {
		u64 p = (u64)0xD2511F53u * c0, q = (u64)0xCD9E8D57u * c2;
		c0 = (unsigned)(q >> 32) ^ c1 ^ k0;
		c1 = (unsigned)q;
		c2 = (unsigned)(p >> 32) ^ c3 ^ k1;
		c3 = (unsigned)p;
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
	return words{{c0, c1, c2, c3}};
}

INLINE u64 joined(unsigned low, unsigned high) { return (u64)low | (u64)high << 32; }

// dropout: the first thread derives the stream of the call; every vector starts at a multiple of four elements.
template <typename T> INLINE void dropout(const dropout_args &a) {
	__shared__ u64 derived[2];
	if (threadIdx.x == 0) {
		const scalars *s = GLOBAL(const scalars, a.scalars);
		words w = philox(s->step, s->microbatch, s->seed);
		w = philox(a.salt, joined(w.w[2], w.w[3]), joined(w.w[0], w.w[1]));
		derived[0] = joined(w.w[0], w.w[1]);
		derived[1] = joined(w.w[2], w.w[3]);
	}
	__syncthreads();
	u64 key = derived[0], high = derived[1];
	const int V = wide<T>::elements;
	stream<V>(a.n, [&](i64 i, i64 left) {
		values<V> x;
		load_some(x, GLOBAL(const T, a.in) + i, left);
#pragma unroll
		for (int k = 0; k < V; k += 4) {
			words w = philox((u64)(i + k) / 4, high, key);
#pragma unroll
			for (int j = 0; j < 4; j++) x.v[k + j] = w.w[j] >= a.threshold ? x.v[k + j] * a.scale : 0;
		}
		deposit(GLOBAL(T, a.out) + i, x, left, a.add);
	});
}
INSTANCES(dropout, dropout_args)

// affine: out (+)= factor*a + plus.
template <typename T> INLINE void affine(const map_args &a) {
	const int V = wide<T>::elements;
	stream<V>(a.n, [&](i64 i, i64 left) {
		values<V> x;
		load_some(x, GLOBAL(const T, a.a) + i, left);
#pragma unroll
		for (int k = 0; k < V; k++) x.v[k] = a.factor * x.v[k] + a.plus;
		deposit(GLOBAL(T, a.out) + i, x, left, a.add);
	});
}
INSTANCES(affine, map_args)
