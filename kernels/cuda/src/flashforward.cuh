// Self-attention in bf16 or tf32 on tensor cores, forward (Dao: FlashAttention-2, 2023). A block computes queries of a head, each of
// its warps BLOCKS times 16 of them. Their scores, weights and results are in registers, in the layout of fragments (see mma.cuh). Tiles of
// keys and values pass through shared memory, one at work and one on its way. Scores and sums are float32; weights are rounded as factors
// of the values. Sums run in an order that the shape alone decides.
#ifndef PLIMSOLL_FLASHFORWARD_CUH
#define PLIMSOLL_FLASHFORWARD_CUH

#include "flash.cuh"

// tiles of heads of up to DIM channels in shared memory: a stage is KEYS keys, then their values. A warp has ROWS queries, which it reads
// with each fragment of keys or values. Fragments of queries that are HELD stay in registers; others lie behind the stages.
template <typename E, int DIM> struct tiles {
	enum {
		WIDTH = rows_of<E, DIM>::WIDTH,
		INNER = rows_of<E, DIM>::INNER,
		BLOCKS = sizeof(E) > 2 && DIM <= 64 ? 2 : 1,
		ROWS = BLOCKS * 16,
		QUERIES = FLASH_WARPS * ROWS,
		HELD = DIM <= 128,
		KEYS = DIM * sizeof(E) <= (BLOCKS == 1 ? 256 : 128) ? 64 : 32,
		STAGE = 2 * KEYS * WIDTH
	};
};

// results of a lane's two rows of a block, group and group + 8. They are sums of weighted values, the largest score, and the lane's part of
// the sum of weights. The largest score is in powers of two; with ANY, in powers of e.
template <int DIM> struct results {
	float o[DIM / 8][4], top[2], sum[2];
};

// scores are a block's 16 queries by KEYS keys.
template <typename E, int DIM> struct scores {
	float v[tiles<E, DIM>::KEYS / 8][4];
};

// of a warp: its blocks of 16 queries.
#define RESULTS results<DIM> (&r)[tiles<E, DIM>::BLOCKS]
#define SCORES scores<E, DIM> (&s)[tiles<E, DIM>::BLOCKS]

// add_scores: s = q * keys^T of a warp. query(m, k) is block m's fragment of channels INNER*k and following. MASKED: keys that no query
// sees are left out; see meet.
template <typename E, int DIM, bool MASKED, typename F> INLINE void add_scores(SCORES, const E *keys, int first, int lane, F query) {
	typedef tiles<E, DIM> T;
	const E *row = keys + right_at<E, DIM>(lane);
#pragma unroll
	for (int k = 0; k < DIM / T::INNER; k++) {
		fragment<E> q[T::BLOCKS];
#pragma unroll
		for (int m = 0; m < T::BLOCKS; m++) q[m] = query(m, k);
#pragma unroll
		for (int c = 0; c < T::KEYS / 16; c++) {
			if (MASKED && c * 16 >= first + T::ROWS) continue;
			fragment<E> b = load_matrices(row + c * 16 * T::WIDTH + k * T::INNER);
#pragma unroll
			for (int m = 0; m < T::BLOCKS; m++) {
				multiply_add(s[m].v[2 * c], q[m], b.r[0], b.r[1]);
				multiply_add(s[m].v[2 * c + 1], q[m], b.r[2], b.r[3]);
			}
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

// weigh turns scores into weights, and scales earlier results by the same power. With ANY, scores are scaled already. A row whose scores are all -infinity so far has weights
// of 0. A NaN among the scores is passed over by the maximum, and makes its weight NaN.
template <typename E, int DIM, bool ANY> INLINE void weigh(results<DIM> &r, scores<E, DIM> &s, float scale) {
#pragma unroll
	for (int i = 0; i < 2; i++) {
		float top = -INFINITE;
#pragma unroll
		for (int j = 0; j < tiles<E, DIM>::KEYS / 8; j++) top = fmaxf(top, fmaxf(s.v[j][2 * i], s.v[j][2 * i + 1]));
		top = fmaxf(r.top[i], quad_max(top) * (ANY ? 1 : scale));
		float off = top == -INFINITE ? 0 : top, factor = power((r.top[i] - off) * (ANY ? LOG2_E : 1)), sum = 0;
		r.top[i] = top;
#pragma unroll
		for (int j = 0; j < tiles<E, DIM>::KEYS / 8; j++)
#pragma unroll
			for (int k = 2 * i; k < 2 * i + 2; k++) sum += s.v[j][k] = power(ANY ? (s.v[j][k] - off) * LOG2_E : fmaf(s.v[j][k], scale, -off));
		r.sum[i] = r.sum[i] * factor + sum;
#pragma unroll
		for (int n = 0; n < DIM / 8; n++) r.o[n][2 * i] *= factor, r.o[n][2 * i + 1] *= factor;
	}
}

// finite puts zeros in the place of NaNs and infinities in a word of factors: two of bf16, or one of tf32.
template <typename E> INLINE unsigned finite(unsigned word);
template <> INLINE unsigned finite<bf16>(unsigned pair) {
	return ((pair & 0x7f80u) == 0x7f80u ? 0 : pair & 0xffffu) | ((pair & 0x7f800000u) == 0x7f800000u ? 0 : pair & 0xffff0000u);
}
template <> INLINE unsigned finite<tf32>(unsigned bits) { return (bits & 0x7f800000u) == 0x7f800000u ? 0 : bits; }

// any_nonfinite tells all lanes whether 16 rows of DIM values hold a NaN or an infinity.
template <typename E, int DIM> INLINE bool any_nonfinite(const E *values, int lane) {
	bool found = false;
#pragma unroll
	for (int i = 0; i < DIM / rows_of<E, DIM>::INNER; i++) {
		int at = (lane + i * 32) * rows_of<E, DIM>::PIECE;
		uint4 u = *(const uint4 *)(values + at / DIM * rows_of<E, DIM>::WIDTH + at % DIM);
		found = found | (finite<E>(u.x) != u.x) | (finite<E>(u.y) != u.y) | (finite<E>(u.z) != u.z) | (finite<E>(u.w) != u.w);
	}
	return __any_sync(0xffffffffu, found);
}

// add_nonfinite adds to o the products that add_values left out: of NaNs and infinities among the values of 16 keys, of which row i sees
// 0 to i.
template <typename E, int DIM> INLINE void add_nonfinite(results<DIM> &r, const float (&weights)[2][4], const E *values, int lane) {
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
		for (int n = 0; n < DIM / 8; n++)
#pragma unroll
			for (int c = 0; c < 2; c++) {
				float v = to_float(values[key * rows_of<E, DIM>::WIDTH + column_of<E>(n, c, lane)]);
				if (v - v == 0) continue;
#pragma unroll
				for (int i = 0; i < 2; i++)
					if (key <= lane / 4 + i * 8) r.o[n][2 * i + c] += p[i] * v;
			}
	}
}

// add_values: o += s * values. MASKED: keys that no query sees are left out. APART: and of each block's 16 last keys, which not all rows
// see, NaNs and infinities.
template <typename E, int DIM, bool MASKED, bool APART> INLINE void add_values(RESULTS, SCORES, const E *values, int first, int lane) {
	typedef tiles<E, DIM> T;
#pragma unroll
	for (int k = 0; k < T::KEYS; k += T::INNER) {
		if (MASKED && k >= first + T::ROWS) continue;
		fragment<E> p[T::BLOCKS];
#pragma unroll
		for (int m = 0; m < T::BLOCKS; m++) factors_of(p[m], &s[m].v[k / 8]);
		each_right<DIM>(values + k * T::WIDTH, lane, [&](int n, unsigned b0, unsigned b1) {
#pragma unroll
			for (int m = 0; m < T::BLOCKS; m++) {
				unsigned x = b0, y = b1;
				if (MASKED && k >= first + m * 16 + 16) continue;
				if (APART && k >= first + m * 16) x = finite<E>(x), y = finite<E>(y);
				multiply_add(r[m].o[n], p[m], x, y);
			}
		});
	}
}

// add_last_values is add_values of the tile with a warp's last keys. A weight of 0 times a NaN or an infinity would be NaN: these are
// added by themselves.
template <typename E, int DIM> INLINE void add_last_values(RESULTS, SCORES, const E *values, int first, int lane) {
	typedef tiles<E, DIM> T;
	bool apart = false;
#pragma unroll
	for (int m = 0; m < T::BLOCKS; m++) apart |= any_nonfinite<E, DIM>(values + (first + m * 16) * T::WIDTH, lane);
	if (!apart) return add_values<E, DIM, true, false>(r, s, values, first, lane);
	add_values<E, DIM, true, true>(r, s, values, first, lane);
#pragma unroll
	for (int m = 0; m < T::BLOCKS; m++) {
		float weights[2][4] = {};
#pragma unroll
		for (int j = 0; j < T::KEYS / 8; j++)
#pragma unroll
			for (int k = 0; k < 4; k++)
				if (j / 2 * 16 == first + m * 16) weights[j % 2][k] = s[m].v[j][k];
		add_nonfinite<E, DIM>(r[m], weights, values + (first + m * 16) * T::WIDTH, lane);
	}
}

// meet adds a tile to a warp's results. MASKED: the warp's row i sees keys 0 to first + i of the tile alone, where first is a multiple
// of ROWS from 0 to KEYS - ROWS. With ANY, finish(m, s) makes what is weighed of block m's products.
template <typename E, int DIM, bool MASKED, bool ANY, typename F, typename G>
INLINE void meet(RESULTS, const E *stage, int first, float scale, int lane, F query, G finish) {
	typedef tiles<E, DIM> T;
	scores<E, DIM> s[T::BLOCKS] = {};
	add_scores<E, DIM, MASKED>(s, stage, first, lane, query);
#pragma unroll
	for (int m = 0; m < T::BLOCKS; m++) {
		if (ANY) finish(m, s[m].v);
		if (MASKED)
#pragma unroll
			for (int j = 0; j < T::KEYS / 8; j++)
#pragma unroll
				for (int k = 0; k < 4; k++)
					if (j * 8 + lane % 4 * 2 + k % 2 > first + m * 16 + lane / 4 + k / 2 * 8) s[m].v[j][k] = -INFINITE;
		weigh<E, DIM, ANY>(r[m], s[m], scale);
	}
	const E *values = stage + T::KEYS * T::WIDTH;
	if (MASKED)
		add_last_values<E, DIM>(r, s, values, first, lane);
	else
		add_values<E, DIM, false, false>(r, s, values, first, lane);
}

// write_rows writes a lane's rows of a block: y is where the block's rows begin, step apart, count of them inside.
template <typename E, int DIM, bool ANY> INLINE void write_rows(const attention_args &a, const results<DIM> &r, i64 y, i64 row, int count, int lane) {
	typedef typename stored<E>::type out;
	i64 step = (i64)a.heads * a.dim;
	float sums[2] = {quad_sum(r.sum[0]), quad_sum(r.sum[1])};
#pragma unroll
	for (int i = 0; i < 2; i++) {
		int at = lane / 4 + i * 8;
		if (at >= count) continue;
		put_row<DIM>(GLOBAL(out, a.y) + y + at * step, r.o, i, 1 / sums[i], a.dim, 0, lane);
		if (!a.rows || lane % 4 != 0) continue;
		double logarithm = r.top[i] * (ANY ? 1 : 0.693147180559945309417) + log((double)sums[i]);
		GLOBAL(float, a.rows)[row + at] = sums[i] == 0 ? __uint_as_float(0x7fffffffu) : (float)logarithm; // NaN: all scores are -infinity
	}
}

// flash_forward: blocks of queries, of heads of samples, those with the most keys first. With ANY, positions may see all others, and terms
// may be added to scores.
template <typename E, int DIM, bool ANY> INLINE void flash_forward(const attention_args &a) {
	typedef tiles<E, DIM> T;
	DYNAMIC_SHARED(char, bytes);
	E *memory = (E *)bytes;
	int parts = (a.length + T::QUERIES - 1) / T::QUERIES, q0 = (parts - 1 - (int)(blockIdx.x % parts)) * T::QUERIES;
	int query = blockIdx.x / parts % a.heads, shared = query / (a.heads / a.kv), lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * T::ROWS;
	i64 n = blockIdx.x / parts / a.heads, sample = n * a.length * a.channels;
	i64 queries = sample + (i64)q0 * a.channels + (i64)query * a.dim;
	i64 keys = sample + (i64)(a.heads + shared) * a.dim, values = keys + (i64)a.kv * a.dim;
	const E *x = GLOBAL(const E, a.x);
	const bool causal = !ANY || !a.bidirectional;
	int seen = causal && q0 + T::QUERIES < a.length ? q0 + T::QUERIES : a.length, count = (seen + T::KEYS - 1) / T::KEYS; // keys, tiles
	auto bring = [&](int tile) {
		E *to = memory + tile % 2 * T::STAGE;
		i64 from = (i64)tile * T::KEYS * a.channels;
		int rows = a.length - tile * T::KEYS;
		bring_rows<E, DIM, T::KEYS>(to, x, keys + from, a.channels, rows, a.dim);
		bring_rows<E, DIM, T::KEYS>(to + T::KEYS * T::WIDTH, x, values + from, a.channels, rows, a.dim);
		end_group();
	};
	E *own = memory + 2 * T::STAGE;
	if (!T::HELD) bring_rows<E, DIM, T::QUERIES>(own, x, queries, a.channels, a.length - q0, a.dim);
	bring(0);
	fragment<E> held[T::BLOCKS][T::HELD ? DIM / T::INNER : 1];
#pragma unroll
	for (int m = 0; m < T::BLOCKS; m++)
#pragma unroll
		for (int k = 0; k < (T::HELD ? DIM / T::INNER : 0); k++) {
			int row = row0 + m * 16;
			held[m][k] = load_left(x, queries + row * a.channels, a.channels, a.length - q0 - row, k * T::INNER, a.dim, lane);
		}
	own += row0 * T::WIDTH + left_at<E, DIM>(lane);
	auto fragment_of = [&](int m, int k) {
		return T::HELD ? held[m][T::HELD ? k : 0] : load_matrices(own + m * 16 * T::WIDTH + k * T::INNER);
	};
	results<DIM> r[T::BLOCKS] = {};
#pragma unroll
	for (int m = 0; m < T::BLOCKS; m++) r[m].top[0] = r[m].top[1] = -INFINITE;
	const float scale = a.scale * LOG2_E;
	const int map = score_terms::map_of(a, n);
	for (int tile = 0; tile < count; tile++) {
		E *stage = memory + tile % 2 * T::STAGE;
		wait_groups<0>();
		round_rows<DIM, T::KEYS>(stage);
		round_rows<DIM, T::KEYS>(stage + T::KEYS * T::WIDTH);
		__syncthreads(); // the tile is there, and the one before it is no longer read
		if (tile + 1 < count) bring(tile + 1);
		const int first = q0 + row0 - tile * T::KEYS;
		if (q0 + row0 >= a.length || (causal && first < 0)) continue; // no rows, or none that sees a key
		auto finish = [&](int m, float (&s)[T::KEYS / 8][4]) {
			const int thread = anew(threadIdx.x), key = tile * T::KEYS + thread % 4 * 2;
			const int position = q0 + thread / 32 * T::ROWS + m * 16 + thread % 32 / 4;
			const score_terms terms(a, map, query);
			terms.add(s, a.scale, [&](int j, int k) { return terms.at(position + k / 2 * 8, key + j * 8 + k % 2); });
			if (tile * T::KEYS + T::KEYS <= a.length) return;
#pragma unroll
			for (int j = 0; j < T::KEYS / 8; j++)
#pragma unroll
				for (int k = 0; k < 4; k++)
					if (key + j * 8 + k % 2 >= a.length) s[j][k] = -INFINITE;
		};
		if (!causal || first >= T::KEYS)
			meet<E, DIM, false, ANY>(r, stage, first, scale, lane, fragment_of, finish);
		else
			meet<E, DIM, true, ANY>(r, stage, first, scale, lane, fragment_of, finish);
	}
#pragma unroll
	for (int m = 0; m < T::BLOCKS; m++) {
		int t = q0 + row0 + m * 16;
		i64 y = ((n * a.length + t) * a.heads + query) * a.dim, row = (n * a.heads + query) * a.length + t;
		write_rows<E, DIM, ANY>(a, r[m], y, row, a.length - t, lane);
	}
}

// FORWARD(kind, ANY, E, DIM, blocks) is a kernel: blocks is how many of them a multiprocessor is to have room for in its registers.
#define FORWARD(kind, ANY, E, DIM, blocks) \
	KERNEL_BOUNDS(flash_##kind##_##E##_d##DIM, struct attention_args, FLASH_THREADS, blocks) { flash_forward<E, DIM, ANY>(a); }

#endif
