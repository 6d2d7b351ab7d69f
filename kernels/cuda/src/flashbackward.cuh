// Gradients of self-attention in bf16 or tf32 on tensor cores (Dao: FlashAttention-2, 2023). A block holds FIXED positions of one
// side, keys or queries, and walks over tiles of the other side. Each block computes scores anew, in an order that the shape alone decides,
// and has its gradients to itself: nothing is added atomically. Weights and the scores' gradients are rounded as factors; all sums are
// float32. A warp has BLOCKS times 16 of the FIXED positions, so that its sums are the next product's left factors where they are.
//
// Scores per pair of positions and channel: 4 products where keys are fixed, 3 where queries are; in heads of more than 128 channels keys
// take 3 and values 2. A head has whole pieces of 16 bytes.
#ifndef PLIMSOLL_FLASHBACKWARD_CUH
#define PLIMSOLL_FLASHBACKWARD_CUH

#include "flash.cuh"

// panels are the shared memory of a block: heads have D channels at most, zeros behind their own. Of the fixed side each lane keeps the
// registers of its fragments. A warp reads each fragment of the moving ROWS for all its BLOCKS; scores of SLICE of them are in registers
// at a time. Where queries move, the 16 bytes behind a row begin with a number of it: saved_sum behind the query, saved_mean behind the
// gradient.
template <typename E, int D, bool KEYS, bool ANY> struct panels {
	enum {
		WIDTH = rows_of<E, D>::WIDTH,
		INNER = rows_of<E, D>::INNER,
		BLOCKS = D <= 64 ? 2 : 1,
		OWN = BLOCKS * 16,
		FIXED = FLASH_WARPS * OWN,
		ROWS = D * sizeof(E) <= 128 ? 64 : D * sizeof(E) <= 384 ? 32 : 16,
		SLICE = ROWS == 16 || D > 96 || (ANY && BLOCKS == 2) || (KEYS && BLOCKS * D * sizeof(E) > 384) ? 16 : 32
	};
	uint4 fixed[2][BLOCKS][D / INNER][FLASH_THREADS]; // keys and values, or queries and gradients of outputs
	E moving[2][2][ROWS][WIDTH];                      // by stage: the others
	INLINE float *number(int stage, int side, int row) { return (float *)&moving[stage][side][row][D]; }
};

// channels_of are a head's rows in a tensor: the first row's offset, and from one row to the next.
struct channels_of {
	u64 tensor;
	i64 first, step;
	template <typename E> INLINE E *row(int t) const { return GLOBAL(E, tensor) + first + t * step; }
};

// projection is column c of queries, keys and values side by side, each of dim channels, in x or dx.
INLINE channels_of projection(const attention_args &a, u64 tensor, i64 n, int c) {
	return channels_of{tensor, n * a.length * a.channels + (i64)c * a.dim, a.channels};
}
INLINE channels_of output_gradient(const attention_args &a, i64 n, int query) {
	return channels_of{a.dy, (n * a.length * a.heads + query) * a.dim, (i64)a.heads * a.dim};
}

// bring_positions begins to copy positions t to t + ROWS - 1; those from the length on are zeros.
template <int D, int ROWS, typename E> INLINE void bring_positions(const attention_args &a, E (&to)[ROWS][rows_of<E, D>::WIDTH], channels_of c, int t) {
	bring_rows<E, D, ROWS>(to[0], c.row<const E>(t), 0, c.step, a.length - t, a.dim);
}

// hold_positions keeps a warp's rows of positions from t on as fragments of one side.
template <int D, bool KEYS, bool ANY, typename E> INLINE void hold_positions(const attention_args &a, panels<E, D, KEYS, ANY> &p, int side, channels_of c, int t) {
	typedef panels<E, D, KEYS, ANY> P;
	int lane = threadIdx.x % 32, first = t + threadIdx.x / 32 * P::OWN;
#pragma unroll
	for (int m = 0; m < P::BLOCKS; m++)
#pragma unroll
		for (int k = 0; k < D / P::INNER; k++) {
			int at = first + m * 16;
			fragment<E> f = load_left(c.row<const E>(0), at * c.step, c.step, a.length - at, k * P::INNER, a.dim, lane);
			p.fixed[side][m][k][threadIdx.x] = make_uint4(f.r[0], f.r[1], f.r[2], f.r[3]);
		}
}

// tile is a block's part of a matrix of positions: 16 fixed ones as rows, SLICE moving ones as columns.
template <typename E, int D, bool KEYS, bool ANY> struct tile {
	float v[panels<E, D, KEYS, ANY>::SLICE / 8][4];
};

// of a warp: its blocks of 16 positions.
#define TILES(x) tile<E, D, KEYS, ANY> (&x)[panels<E, D, KEYS, ANY>::BLOCKS]
#define SUMS_OF(x) float (&x)[panels<E, D, KEYS, ANY>::BLOCKS][D / 8][4]

// add_product adds fixed * moving^T of one side: a warp's rows of the fixed, SLICE rows of the moving.
template <typename E, int D, bool KEYS, bool ANY> INLINE void add_product(TILES(s), const panels<E, D, KEYS, ANY> &p, int side, const E *moving) {
	typedef panels<E, D, KEYS, ANY> P;
	const E *right = moving + right_at<E, D>(threadIdx.x % 32);
#pragma unroll
	for (int k = 0; k < D / P::INNER; k++) {
		fragment<E> f[P::BLOCKS];
#pragma unroll
		for (int m = 0; m < P::BLOCKS; m++) {
			uint4 u = p.fixed[side][m][k][threadIdx.x];
			f[m] = {{u.x, u.y, u.z, u.w}};
		}
#pragma unroll
		for (int j = 0; j < P::SLICE / 8; j += 2) {
			fragment<E> b = load_matrices(right + j * 8 * P::WIDTH + k * P::INNER);
#pragma unroll
			for (int m = 0; m < P::BLOCKS; m++) {
				multiply_add(s[m].v[j], f[m], b.r[0], b.r[1]);
				multiply_add(s[m].v[j + 1], f[m], b.r[2], b.r[3]);
			}
		}
	}
}

// add_weighted adds weights * rows: the columns of the weights are SLICE rows from there on.
template <typename E, int D, bool KEYS, bool ANY> INLINE void add_weighted(SUMS_OF(out), const TILES(weights), const E *rows) {
	typedef panels<E, D, KEYS, ANY> P;
#pragma unroll
	for (int k = 0; k < P::SLICE; k += P::INNER) {
		fragment<E> w[P::BLOCKS];
#pragma unroll
		for (int m = 0; m < P::BLOCKS; m++) factors_of(w[m], &weights[m].v[k / 8]);
		each_right<D>(rows + k * P::WIDTH, threadIdx.x % 32, [&](int n, unsigned b0, unsigned b1) {
#pragma unroll
			for (int m = 0; m < P::BLOCKS; m++) multiply_add(out[m][n], w[m], b0, b1);
		});
	}
}

// put_rows writes a warp's rows of a gradient of the positions from t on.
template <typename E, int D, bool KEYS, bool ANY> INLINE void put_rows(const attention_args &a, const SUMS_OF(out), channels_of c, int t, float factor) {
	typedef typename stored<E>::type gradient;
	int lane = threadIdx.x % 32, row = t + threadIdx.x / 32 * panels<E, D, KEYS, ANY>::OWN + lane / 4;
#pragma unroll
	for (int m = 0; m < panels<E, D, KEYS, ANY>::BLOCKS; m++)
#pragma unroll
		for (int i = 0; i < 2; i++) {
			int at = row + m * 16 + i * 8;
			if (at < a.length) put_row<D>(c.row<gradient>(at), out[m], i, factor, a.dim, a.add, lane);
		}
}

// saved_sum is log(sum(exp)) of a query's row of scores, times a factor, saved_mean the sum of dy*y. A query behind the length sees nothing.
INLINE float saved_sum(const attention_args &a, i64 row, int t, float factor) {
	return t < a.length ? GLOBAL(const float, a.rows)[row * a.length + t] * factor : INFINITE;
}
INLINE float saved_mean(const attention_args &a, i64 row, int t) {
	return t < a.length ? GLOBAL(const float, a.means)[row * a.length + t] : 0;
}

// await_stage returns when a stage is there, and nobody reads the other one any more.
template <typename E, int D, bool KEYS, bool ANY> INLINE void await_stage(panels<E, D, KEYS, ANY> &p, int stage) {
	wait_groups<0>();
	round_rows<D, panels<E, D, KEYS, ANY>::ROWS>(p.moving[stage][0][0]);
	round_rows<D, panels<E, D, KEYS, ANY>::ROWS>(p.moving[stage][1][0]);
	__syncthreads();
}

// slice is SLICE moving positions from t on, which are rows from c on of a stage, beside fixed positions from held on. The scores are of a
// head of queries, of samples with the masks map.
struct slice {
	int t, c, held, map, head;
};

// weigh_slice makes the weights of a slice, and with SLOPES the gradients of its scores. Where queries are fixed, sums and means are theirs.
template <typename E, int D, bool KEYS, bool ANY, bool SLOPES>
INLINE void weigh_slice(const attention_args &a, panels<E, D, KEYS, ANY> &p, TILES(weights), TILES(slopes), int stage, slice at,
	const float (&sums)[panels<E, D, KEYS, ANY>::BLOCKS][2], const float (&means)[panels<E, D, KEYS, ANY>::BLOCKS][2]) {
	typedef panels<E, D, KEYS, ANY> P;
	const bool causal = !ANY || !a.bidirectional;
	const float factor = a.scale * LOG2_E;
	const int lane = threadIdx.x % 32, warp = at.held + threadIdx.x / 32 * P::OWN, row = warp + lane / 4, column = lane % 4 * 2;
#pragma unroll
	for (int m = 0; m < P::BLOCKS; m++) weights[m] = {}, slopes[m] = {};
	add_product<E, D, KEYS, ANY>(weights, p, 0, p.moving[stage][0][at.c]);
	if constexpr (SLOPES) add_product<E, D, KEYS, ANY>(slopes, p, 1, p.moving[stage][1][at.c]);
#pragma unroll
	for (int m = 0; m < (ANY ? P::BLOCKS : 0); m++) {
		const score_terms terms(a, at.map, at.head);
		const int thread = anew(threadIdx.x);
		terms.add(weights[m].v, a.scale, [&](int j, int k) {
			const int still = at.held + thread / 32 * P::OWN + m * 16 + thread % 32 / 4 + k / 2 * 8, moving = at.t + j * 8 + thread % 4 * 2 + k % 2;
			return KEYS ? terms.at(moving, still) : terms.at(still, moving);
		});
	}
#pragma unroll
	for (int j = 0; j < P::SLICE / 8; j++)
#pragma unroll
		for (int k = 0; k < 2; k++) {
			const int moving = at.c + j * 8 + column + k;
			float its_sum = KEYS ? *p.number(stage, 0, moving) : 0, its_mean = KEYS ? *p.number(stage, 1, moving) : 0;
#pragma unroll
			for (int i = 0; i < 2 * P::BLOCKS; i++) {
				float sum = KEYS ? its_sum : sums[i / 2][i % 2], mean = KEYS ? its_mean : means[i / 2][i % 2];
				float &weight = weights[i / 2].v[j][i % 2 * 2 + k], &slope = slopes[i / 2].v[j][i % 2 * 2 + k];
				weight = power(ANY ? (weight - sum) * LOG2_E : fmaf(weight, factor, -sum));
				slope = weight * (slope - mean);
			}
		}
	if ((causal && (KEYS ? at.t < warp + P::OWN : at.t + P::SLICE > warp)) || ((KEYS || !causal) && at.t + P::SLICE > a.length))
#pragma unroll
		for (int j = 0; j < P::SLICE / 8; j++)
#pragma unroll
			for (int i = 0; i < 4 * P::BLOCKS; i++) {
				const int still = row + i / 2 * 8, moving = at.t + j * 8 + column + i % 2;
				const bool ahead = causal && (KEYS ? moving < still : still < moving);
				if (!ahead && (KEYS || !causal ? moving < a.length : true)) continue;
				weights[i / 4].v[j][i % 4] = slopes[i / 4].v[j][i % 4] = 0;
			}
}

// A block makes gradients of one of these. Registers do not hold those of both keys and values of more than 128 channels.
enum makes { OF_QUERIES, OF_KEYS, OF_VALUES, OF_BOTH };

// flash_gradients makes one side's gradients. With KEYS a block has FIXED keys of a head of keys and values; it walks over the queries that
// see them, of all heads that share it. Else a block has FIXED queries of a head, and walks over the keys that they see. Blocks are tiles of
// positions of heads of samples; of a head those come first that take longest. ANY is as in flash_forward.
template <typename E, int D, makes OF, bool ANY> INLINE void flash_gradients(const attention_args &a) {
	enum : bool { KEYS = OF != OF_QUERIES, VALUES = OF == OF_VALUES || OF == OF_BOTH, FIRST = OF != OF_VALUES };
	typedef panels<E, D, KEYS, ANY> P;
	enum { BLOCKS = P::BLOCKS, FIXED = P::FIXED, ROWS = P::ROWS, SLICE = P::SLICE };
	DYNAMIC_SHARED(char, memory);
	P &p = *(P *)memory;
	const int parts = (a.length + FIXED - 1) / FIXED, part = blockIdx.x % parts, heads = KEYS ? a.kv : a.heads, group = a.heads / a.kv;
	const int head = blockIdx.x / parts % heads, shared = KEYS ? head : head / group;
	const int n = blockIdx.x / parts / heads;
	const bool causal = !ANY || !a.bidirectional;
	const int held = (KEYS ? part : parts - 1 - part) * FIXED, first = KEYS && causal ? held : 0;
	const int end = KEYS || !causal || held + FIXED > a.length ? a.length : held + FIXED;
	const int turns = (end - first + ROWS - 1) / ROWS * (KEYS ? group : 1);
	const int row = threadIdx.x / 32 * P::OWN + threadIdx.x % 32 / 4; // of the lane's first sum
	int t = first, query = KEYS ? head * group : head; // of a turn: the first of the moving positions, and the head of queries
	auto fetch = [&](int stage) {
		bring_positions<D>(a, p.moving[stage][0], projection(a, a.x, n, KEYS ? query : a.heads + shared), t);
		bring_positions<D>(a, p.moving[stage][1], KEYS ? output_gradient(a, n, query) : projection(a, a.x, n, a.heads + a.kv + shared), t);
	};
	// A thread brings one value for each turn: the first half of the threads sums, the others means.
	const int map = score_terms::map_of(a, n);
	const float base = ANY ? 1 : LOG2_E; // of saved sums
	const int half = threadIdx.x / (FLASH_THREADS / 2), mine = threadIdx.x % (FLASH_THREADS / 2);
	auto statistic = [&] { return half ? saved_mean(a, (i64)n * a.heads + query, t + mine) : saved_sum(a, (i64)n * a.heads + query, t + mine, base); };
	auto put_statistic = [&](int stage, float v) {
		if (mine < ROWS) *p.number(stage, half, mine) = v;
	};

	fetch(0);
	end_group();
	hold_positions<D, KEYS, ANY>(a, p, 0, projection(a, a.x, n, KEYS ? a.heads + shared : head), held);
	hold_positions<D, KEYS, ANY>(a, p, 1, KEYS ? projection(a, a.x, n, a.heads + a.kv + shared) : output_gradient(a, n, head), held);
	float next = 0, sums[BLOCKS][2], means[BLOCKS][2];
	if (KEYS) put_statistic(0, statistic());
	else
#pragma unroll
		for (int i = 0; i < 2 * BLOCKS; i++) {
			sums[i / 2][i % 2] = saved_sum(a, (i64)n * a.heads + head, held + row + i * 8, base);
			means[i / 2][i % 2] = saved_mean(a, (i64)n * a.heads + head, held + row + i * 8);
		}
	float out[FIRST ? BLOCKS : 1][D / 8][4] = {}, values_[VALUES ? BLOCKS : 1][D / 8][4] = {};
	for (int turn = 0; turn < turns; turn++) {
		const int stage = turn % 2, now = t, head_now = query;
		await_stage<E, D, KEYS, ANY>(p, stage);
		if (turn + 1 < turns) {
			t += ROWS;
			if (KEYS && t >= end) t = first, query++;
			fetch(1 - stage);
			if (KEYS) next = statistic();
		}
		end_group();
#pragma unroll 1
		for (int c = 0; c < ROWS; c += SLICE) {
			// No query of the slice sees a key of the warp, or no key of the slice is seen by a query of the warp.
			const int warp = held + threadIdx.x / 32 * P::OWN;
			if (causal && (KEYS ? now + c + SLICE <= warp : now + c >= warp + P::OWN)) continue;
			tile<E, D, KEYS, ANY> weights[BLOCKS], slopes[BLOCKS];
			weigh_slice<E, D, KEYS, ANY, FIRST>(a, p, weights, slopes, stage, slice{now + c, c, held, map, head_now}, sums, means);
			if constexpr (VALUES) add_weighted<E, D, KEYS, ANY>(values_, weights, p.moving[stage][1][c]);
			if constexpr (FIRST) add_weighted<E, D, KEYS, ANY>(out, slopes, p.moving[stage][0][c]);
		}
		if (KEYS && turn + 1 < turns) put_statistic(1 - stage, next);
	}
	if constexpr (FIRST) put_rows<E, D, KEYS, ANY>(a, out, projection(a, a.dx, n, KEYS ? a.heads + shared : head), held, a.scale);
	if constexpr (VALUES) put_rows<E, D, KEYS, ANY>(a, values_, projection(a, a.dx, n, a.heads + a.kv + shared), held, 1);
}

// flash_terms makes the gradients of what is added to scores, by head and positions: terms has those of a part of the samples, summed in
// their order. A block has FIXED queries and ROWS keys of a head.
template <typename E, int D> INLINE void flash_terms(const attention_args &a) {
	typedef panels<E, D, false, true> P;
	enum { BLOCKS = P::BLOCKS, FIXED = P::FIXED, ROWS = P::ROWS, SLICE = P::SLICE };
	DYNAMIC_SHARED(char, memory);
	P &p = *(P *)memory;
	const int rows = (a.length + FIXED - 1) / FIXED, columns = (a.length + ROWS - 1) / ROWS, head = blockIdx.y, shared = head / (a.heads / a.kv);
	const int held = (int)blockIdx.x % rows * FIXED, now = (int)blockIdx.x / rows % columns * ROWS, part = (int)blockIdx.x / rows / columns;
	const int first = (int)(a.samples * part / a.parts), end = (int)(a.samples * (part + 1) / a.parts);
	auto fetch = [&](int n) {
		const int stage = (n - first) % 2;
		bring_positions<D>(a, p.moving[stage][0], projection(a, a.x, n, a.heads + shared), now);
		bring_positions<D>(a, p.moving[stage][1], projection(a, a.x, n, a.heads + a.kv + shared), now);
		end_group();
	};
	float total[BLOCKS][ROWS / 8][4] = {};
	fetch(first);
	for (int n = first; n < end; n++) {
		const int stage = (n - first) % 2, map = score_terms::map_of(a, n), row = held + threadIdx.x / 32 * P::OWN + threadIdx.x % 32 / 4;
		float sums[BLOCKS][2], means[BLOCKS][2];
		hold_positions<D, false, true>(a, p, 0, projection(a, a.x, n, head), held);
		hold_positions<D, false, true>(a, p, 1, output_gradient(a, n, head), held);
#pragma unroll
		for (int i = 0; i < 2 * BLOCKS; i++) {
			sums[i / 2][i % 2] = saved_sum(a, (i64)n * a.heads + head, row + i * 8, 1);
			means[i / 2][i % 2] = saved_mean(a, (i64)n * a.heads + head, row + i * 8);
		}
		await_stage<E, D, false, true>(p, stage);
		if (n + 1 < end) fetch(n + 1);
#pragma unroll
		for (int c = 0; c < ROWS; c += SLICE) {
			tile<E, D, false, true> weights[BLOCKS], slopes[BLOCKS];
			weigh_slice<E, D, false, true, true>(a, p, weights, slopes, stage, slice{now + c, c, held, map, head}, sums, means);
#pragma unroll
			for (int j = 0; j < SLICE / 8; j++)
#pragma unroll
				for (int i = 0; i < 4 * BLOCKS; i++) total[i / 4][c / 8 + j][i % 4] += slopes[i / 4].v[j][i % 4];
		}
	}
	const int thread = anew(threadIdx.x), row = held + thread / 32 * P::OWN + thread % 32 / 4, column = now + thread % 4 * 2;
	float *to = GLOBAL(float, a.terms) + ((i64)part * a.heads + head) * a.length * a.length;
#pragma unroll
	for (int j = 0; j < ROWS / 8; j++)
#pragma unroll
		for (int i = 0; i < 4 * BLOCKS; i++) {
			const int query = row + i / 2 * 8, key = column + j * 8 + i % 2;
			if (query < a.length && key < a.length) to[(i64)query * a.length + key] = total[i / 4][j][i % 4];
		}
}

// GRADIENTS(kind, of, ANY, E, D, blocks) is a kernel: blocks is how many of them a multiprocessor is to have room for in its registers.
#define GRADIENTS(kind, of, ANY, E, D, blocks) \
	KERNEL_BOUNDS(flash_##kind##_##E##_d##D, struct attention_args, FLASH_THREADS, blocks) { flash_gradients<E, D, of, ANY>(a); }

#endif
