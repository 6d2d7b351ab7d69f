// Causal self-attention in bfloat16 on tensor cores, forward (Dao: FlashAttention-2, 2023). A block computes ROWS queries of a head, each
// of its warps WARP_ROWS of them: their scores, weights and results are in registers, in the layout of fragments (see mma.cuh). Tiles of
// keys and values pass through shared memory, one at work and one on its way. Scores and sums are float32; weights are rounded to
// bfloat16 as factors of the values. Sums run in an order that the shape alone decides.
#include "mma.cuh"

enum { ROWS = 64, WARP_ROWS = 16, FLASH_THREADS = ROWS / WARP_ROWS * 32 };

#define INFINITE __uint_as_float(0x7f800000u)

// tiles of heads of up to DIM channels in shared memory: a stage is KEYS keys, then their values. WIDTH keeps rows in different banks.
// Fragments of queries with HELD channels or fewer stay in registers; the queries lie where the second stage comes later.
template <int DIM> struct tiles {
	enum { HELD = DIM <= 128, WIDTH = DIM + 8, KEYS = HELD ? 64 : 32, STAGE = 2 * KEYS * WIDTH, QUERIES = HELD ? STAGE : 2 * STAGE };
};

// fetch begins to copy COUNT rows of DIM channels: of x, from an offset on, step apart. Rows and channels that do not exist are zeros.
template <int DIM, int COUNT> INLINE void fetch(bf16 *to, const bf16 *x, i64 first, i64 step, int rows, int dim) {
	enum { PIECES = DIM / wide<bf16>::elements };
#pragma unroll
	for (int k = 0; k < COUNT * PIECES / FLASH_THREADS; k++) {
		int i = threadIdx.x + k * FLASH_THREADS, row = i / PIECES, column = i % PIECES * wide<bf16>::elements;
		bool zero = row >= rows || column >= dim;
		copy_async(to + row * tiles<DIM>::WIDTH + column, x + (zero ? 0 : first + row * step + column), zero);
	}
}

// results of a lane's two rows, group and group + 8: sums of weighted values, the largest score in powers of two, and the lane's part of
// the sum of weights.
template <int DIM> struct results {
	float o[DIM / 8][4], top[2], sum[2];
};

// add_scores: s = q * keys^T of a warp. query(k) is the fragment of channels 16k and following. MASKED: keys behind the 16 from
// first on are left out.
template <int DIM, bool MASKED, typename F>
INLINE void add_scores(float (&s)[tiles<DIM>::KEYS / 8][4], const bf16 *keys, int first, int lane, F query) {
	const bf16 *row = keys + (lane / 16 * 8 + lane % 8) * tiles<DIM>::WIDTH + lane / 8 % 2 * 8;
#pragma unroll
	for (int k = 0; k < DIM / 16; k++) {
		fragment<bf16> q = query(k);
#pragma unroll
		for (int c = 0; c < tiles<DIM>::KEYS / 16; c++) {
			if (MASKED && c * 16 > first) continue;
			fragment<bf16> b = load_matrices(row + c * 16 * tiles<DIM>::WIDTH + k * 16);
			multiply_add(s[2 * c], q, b.r[0], b.r[1]);
			multiply_add(s[2 * c + 1], q, b.r[2], b.r[3]);
		}
	}
}

// quad_max is the largest of four lanes that hold a row.
INLINE float quad_max(float v) {
	v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
	return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}
INLINE float quad_sum(float v) {
	v += __shfl_xor_sync(0xffffffffu, v, 1);
	return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

// weigh turns scores into weights, and scales earlier results by the same power. A row whose scores are all -infinity so far has weights
// of 0. A NaN among the scores is passed over by the maximum, and makes its weight NaN.
template <int DIM> INLINE void weigh(results<DIM> &r, float (&s)[tiles<DIM>::KEYS / 8][4], float scale) {
#pragma unroll
	for (int i = 0; i < 2; i++) {
		float top = -INFINITE;
#pragma unroll
		for (int j = 0; j < tiles<DIM>::KEYS / 8; j++) top = fmaxf(top, fmaxf(s[j][2 * i], s[j][2 * i + 1]));
		top = fmaxf(r.top[i], quad_max(top) * scale);
		float off = top == -INFINITE ? 0 : top, factor = power(r.top[i] - off), sum = 0;
		r.top[i] = top;
#pragma unroll
		for (int j = 0; j < tiles<DIM>::KEYS / 8; j++)
#pragma unroll
			for (int k = 2 * i; k < 2 * i + 2; k++) sum += s[j][k] = power(s[j][k] * scale - off);
		r.sum[i] = r.sum[i] * factor + sum;
#pragma unroll
		for (int n = 0; n < DIM / 8; n++) r.o[n][2 * i] *= factor, r.o[n][2 * i + 1] *= factor;
	}
}

// nonfinite reports whether one of two values of bfloat16 is NaN or infinite; finite puts zeros in the place of such values.
INLINE bool nonfinite(unsigned pair) { return ((pair & 0x7f80u) == 0x7f80u) | ((pair & 0x7f800000u) == 0x7f800000u); }
INLINE unsigned finite(unsigned pair) {
	return ((pair & 0x7f80u) == 0x7f80u ? 0 : pair & 0xffffu) | ((pair & 0x7f800000u) == 0x7f800000u ? 0 : pair & 0xffff0000u);
}

// any_nonfinite tells all lanes whether 16 rows of DIM values hold a NaN or an infinity.
template <int DIM> INLINE bool any_nonfinite(const bf16 *values, int lane) {
	bool found = false;
#pragma unroll
	for (int i = 0; i < DIM / 16; i++) {
		int at = (lane + i * 32) * 8;
		uint4 u = *(const uint4 *)(values + at / DIM * tiles<DIM>::WIDTH + at % DIM);
		found = found | nonfinite(u.x) | nonfinite(u.y) | nonfinite(u.z) | nonfinite(u.w);
	}
	return __any_sync(0xffffffffu, found);
}

// add_nonfinite adds to o the products that add_values left out: of NaNs and infinities among the values of 16 keys, of which row i sees
// 0 to i.
template <int DIM> INLINE void add_nonfinite(results<DIM> &r, const float (&weights)[2][4], const bf16 *values, int lane) {
#pragma unroll 1
	for (int key = 0; key < 16; key++) {
		float p[2];
#pragma unroll
		for (int i = 0; i < 2; i++) {
			float even = weights[0][2 * i], odd = weights[0][2 * i + 1];
			if (key >= 8) even = weights[1][2 * i], odd = weights[1][2 * i + 1];
			p[i] = __shfl_sync(0xffffffffu, key % 2 ? odd : even, lane / 4 * 4 + key % 8 / 2);
		}
#pragma unroll
		for (int n = 0; n < DIM / 8; n++) {
			unsigned pair = *(const unsigned *)(values + key * tiles<DIM>::WIDTH + n * 8 + lane % 4 * 2), kept = finite(pair);
#pragma unroll
			for (int i = 0; i < 2; i++) {
				if (key > lane / 4 + i * 8) continue;
				if ((kept ^ pair) & 0xffffu) r.o[n][2 * i] += p[i] * low_half(pair);
				if ((kept ^ pair) & 0xffff0000u) r.o[n][2 * i + 1] += p[i] * high_half(pair);
			}
		}
	}
}

// add_values: o += s * values, where the weights in s have the layout of fragments of A. A weight of 0 times a NaN or an infinity would be
// NaN: such values of the 16 keys from first on, which not all rows see, are added by themselves.
template <int DIM, bool MASKED>
INLINE void add_values(results<DIM> &r, const float (&s)[tiles<DIM>::KEYS / 8][4], const bf16 *values, int first, int lane) {
	const bf16 *last = values + first * tiles<DIM>::WIDTH;
	bool apart = MASKED && any_nonfinite<DIM>(last, lane);
#pragma unroll
	for (int c = 0; c < tiles<DIM>::KEYS / 16; c++) {
		if (MASKED && c * 16 > first) continue;
		const float *low = s[2 * c], *high = s[2 * c + 1];
		fragment<bf16> p = {{rounded_pair(low[0], low[1]), rounded_pair(low[2], low[3]), rounded_pair(high[0], high[1]), rounded_pair(high[2], high[3])}};
#pragma unroll
		for (int n = 0; n < DIM / 16; n++) {
			fragment<bf16> b = right_across(values + c * 16 * tiles<DIM>::WIDTH + n * 16, tiles<DIM>::WIDTH, lane);
			if (apart && c * 16 == first)
#pragma unroll
				for (int i = 0; i < 4; i++) b.r[i] = finite(b.r[i]);
			multiply_add(r.o[2 * n], p, b.r[0], b.r[1]);
			multiply_add(r.o[2 * n + 1], p, b.r[2], b.r[3]);
		}
	}
	if (!apart) return;
	float weights[2][4] = {};
#pragma unroll
	for (int j = 0; j < tiles<DIM>::KEYS / 8; j++)
#pragma unroll
		for (int k = 0; k < 4; k++)
			if (j / 2 * 16 == first) weights[j % 2][k] = s[j][k];
	add_nonfinite<DIM>(r, weights, last, lane);
}

// meet adds a tile to a warp's results. MASKED: the warp's row i sees keys 0 to first + i of the tile alone, where first is a multiple
// of 16.
template <int DIM, bool MASKED, typename F> INLINE void meet(results<DIM> &r, const bf16 *stage, int first, float scale, int lane, F query) {
	float s[tiles<DIM>::KEYS / 8][4] = {};
	add_scores<DIM, MASKED>(s, stage, first, lane, query);
	if (MASKED) {
#pragma unroll
		for (int j = 0; j < tiles<DIM>::KEYS / 8; j++)
#pragma unroll
			for (int k = 0; k < 4; k++)
				if (j * 8 + lane % 4 * 2 + k % 2 > first + lane / 4 + k / 2 * 8) s[j][k] = -INFINITE;
	}
	weigh<DIM>(r, s, scale);
	add_values<DIM, MASKED>(r, s, stage + tiles<DIM>::KEYS * tiles<DIM>::WIDTH, first, lane);
}

// write_rows writes a lane's rows of a head: y is where the warp's rows begin, step apart, count of them inside.
template <int DIM> INLINE void write_rows(const attention_args &a, const results<DIM> &r, i64 y, i64 row, int count, int lane) {
	i64 step = (i64)a.heads * a.dim;
	float sums[2] = {quad_sum(r.sum[0]), quad_sum(r.sum[1])};
#pragma unroll
	for (int i = 0; i < 2; i++) {
		float inverse = 1 / sums[i];
		int at = lane / 4 + i * 8;
		if (at >= count) continue;
#pragma unroll
		for (int n = 0; n < DIM / 8; n++)
			if (n * 8 < a.dim)
				store_pair(GLOBAL(bf16, a.y) + y + at * step + n * 8 + lane % 4 * 2, r.o[n][2 * i] * inverse, r.o[n][2 * i + 1] * inverse);
		if (!a.rows || lane % 4 != 0) continue;
		double logarithm = r.top[i] * 0.693147180559945309417 + log((double)sums[i]);
		GLOBAL(float, a.rows)[row + at] = sums[i] == 0 ? __uint_as_float(0x7fffffffu) : (float)logarithm; // NaN: all scores are -infinity
	}
}

// flash_forward: blocks of ROWS queries, of heads of samples, those with the most keys first.
template <int DIM> INLINE void flash_forward(const attention_args &a) {
	DYNAMIC_SHARED(bf16, memory);
	typedef tiles<DIM> T;
	int parts = (a.length + ROWS - 1) / ROWS, q0 = (parts - 1 - (int)(blockIdx.x % parts)) * ROWS;
	int query = blockIdx.x / parts % a.heads, shared = query / (a.heads / a.kv), lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * WARP_ROWS;
	i64 n = blockIdx.x / parts / a.heads, sample = n * a.length * a.channels;
	i64 keys = sample + (i64)(a.heads + shared) * a.dim, values = keys + (i64)a.kv * a.dim;
	const bf16 *x = GLOBAL(const bf16, a.x);
	int seen = q0 + ROWS < a.length ? q0 + ROWS : a.length, count = (seen + T::KEYS - 1) / T::KEYS; // keys, and tiles of them
	auto bring = [&](int tile) {
		bf16 *to = memory + tile % 2 * T::STAGE;
		i64 from = (i64)tile * T::KEYS * a.channels;
		int rows = a.length - tile * T::KEYS;
		fetch<DIM, T::KEYS>(to, x, keys + from, a.channels, rows, a.dim);
		fetch<DIM, T::KEYS>(to + T::KEYS * T::WIDTH, x, values + from, a.channels, rows, a.dim);
		end_group();
	};
	fetch<DIM, ROWS>(memory + T::QUERIES, x, sample + (i64)q0 * a.channels + (i64)query * a.dim, a.channels, a.length - q0, a.dim);
	bring(0);
	wait_groups<0>();
	__syncthreads();
	const bf16 *own = memory + T::QUERIES + (row0 + lane % 16) * T::WIDTH + lane / 16 * 8;
	fragment<bf16> held[T::HELD ? DIM / 16 : 1];
	if (T::HELD)
#pragma unroll
		for (int k = 0; k < DIM / 16; k++) held[T::HELD ? k : 0] = load_matrices(own + k * 16);
	auto fragment_of = [&](int k) { return T::HELD ? held[T::HELD ? k : 0] : load_matrices(own + k * 16); };
	results<DIM> r = {};
	r.top[0] = r.top[1] = -INFINITE;
	float scale = a.scale * 1.44269504088896341f; // to powers of two
	for (int tile = 0; tile < count; tile++) {
		wait_groups<0>();
		__syncthreads(); // the tile is there, and the one before it, or the queries, is no longer read
		if (tile + 1 < count) bring(tile + 1);
		const bf16 *stage = memory + tile % 2 * T::STAGE;
		int first = q0 + row0 - tile * T::KEYS;
		if (q0 + row0 >= a.length || first + WARP_ROWS <= 0) continue; // no rows, or none that sees a key
		if (first >= T::KEYS)
			meet<DIM, false>(r, stage, first, scale, lane, fragment_of);
		else
			meet<DIM, true>(r, stage, first, scale, lane, fragment_of);
	}
	i64 y = ((n * a.length + q0 + row0) * a.heads + query) * a.dim, row = (n * a.heads + query) * a.length + q0 + row0;
	write_rows<DIM>(a, r, y, row, a.length - q0 - row0, lane);
}

#define FLASH(DIM, blocks) KERNEL_BOUNDS(flash_forward_##DIM, struct attention_args, FLASH_THREADS, blocks) { flash_forward<DIM>(a); }

FLASH(32, 4)
FLASH(64, 3)
FLASH(96, 2)
FLASH(128, 2)
FLASH(256, 2)
