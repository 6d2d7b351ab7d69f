// Gradients of causal self-attention in bf16 on tensor cores (Dao: FlashAttention-2, 2023). A block holds FIXED positions of one side,
// keys or queries, and walks over tiles of the other side. Each block computes scores anew, in an order that the shape alone decides,
// and has its gradients to itself: nothing is added atomically. Weights and the scores' gradients are rounded to bf16 as factors;
// all sums are float32. A warp has 16 of the FIXED positions, so that its sums are the next product's left factors where they are.
//
// Scores per pair of positions and channel: 4 products where keys are fixed, 3 where queries are. A head has a multiple of 8 channels.
#include "mma.cuh"

enum { FIXED = 64, FLASH_THREADS = 128 }; // 4 warps

// panels are the shared memory of a block: heads have D channels at most, zeros behind their own. The 8 values behind each row keep
// rows in different banks. Scores of SLICE of the moving ROWS are in registers at a time.
template <int D> struct panels {
	enum { ROWS = D <= 64 ? 64 : 32, SLICE = D <= 96 ? 32 : 16, WIDTH = D + 8 };
	bf16 fixed[2][FIXED][WIDTH];         // keys and values, or queries and gradients of outputs
	bf16 moving[2][2][ROWS][WIDTH];      // by stage: the others
	float sums[2][ROWS], means[2][ROWS]; // by stage: of the queries that move
};

// channels_of are a head's rows in a tensor: the first row's offset, and from one row to the next.
struct channels_of {
	u64 tensor;
	i64 first, step;
	INLINE const bf16 *row(int t) const { return GLOBAL(const bf16, tensor) + first + t * step; }
};

// projection is column c of queries, keys and values side by side, each of dim channels, in x or dx.
INLINE channels_of projection(const attention_args &a, u64 tensor, i64 n, int c) {
	return channels_of{tensor, n * a.length * a.channels + (i64)c * a.dim, a.channels};
}
INLINE channels_of output_gradient(const attention_args &a, i64 n, int query) {
	return channels_of{a.dy, (n * a.length * a.heads + query) * a.dim, (i64)a.heads * a.dim};
}

// bring_rows begins to copy positions t to t + ROWS - 1; those from the length on are zeros. LANES threads copy a row.
template <int D, int ROWS> INLINE void bring_rows(const attention_args &a, bf16 (&to)[ROWS][D + 8], channels_of c, int t) {
	enum { LANES = D <= 32 ? 4 : D <= 64 ? 8 : 16, STEP = FLASH_THREADS / LANES };
	const int k = threadIdx.x % LANES * 8;
	int row = threadIdx.x / LANES;
	if (k >= D) return;
	const bf16 *from = c.row(t);
	i64 offset = row * c.step + k;
#pragma unroll 1
	for (; row < ROWS; row += STEP, offset += STEP * c.step) {
		bool inside = t + row < a.length && k < a.dim;
		copy_async(&to[row][k], from + (inside ? offset : 0), !inside);
	}
}

// tile is a warp's part of a matrix of positions: its 16 fixed ones as rows, SLICE moving ones as columns.
template <int D> struct tile {
	float v[panels<D>::SLICE / 8][4];
};

// add_products adds fixed * moving^T of both pairs: a warp's 16 rows of the fixed, SLICE rows of the moving from column on.
template <int D> INLINE void add_products(tile<D> &s, tile<D> &d, const panels<D> &p, int stage, int column) {
	enum { WIDTH = panels<D>::WIDTH };
	int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	int left = (warp * 16 + lane % 16) * WIDTH + lane / 16 * 8, right = (column + lane / 16 * 8 + lane % 8) * WIDTH + lane / 8 % 2 * 8;
#pragma unroll
	for (int k = 0; k < D; k += 16) {
		fragment<bf16> f = load_matrices(&p.fixed[0][0][0] + left + k), g = load_matrices(&p.fixed[1][0][0] + left + k);
#pragma unroll
		for (int j = 0; j < panels<D>::SLICE / 8; j += 2) {
			fragment<bf16> b = load_matrices(&p.moving[stage][0][0][0] + right + j * 8 * WIDTH + k);
			multiply_add(s.v[j], f, b.r[0], b.r[1]);
			multiply_add(s.v[j + 1], f, b.r[2], b.r[3]);
			b = load_matrices(&p.moving[stage][1][0][0] + right + j * 8 * WIDTH + k);
			multiply_add(d.v[j], g, b.r[0], b.r[1]);
			multiply_add(d.v[j + 1], g, b.r[2], b.r[3]);
		}
	}
}

// add_weighted adds weights * rows: the columns of the weights are SLICE rows of WIDTH values from there on.
template <int D> INLINE void add_weighted(float (&out)[D / 8][4], const tile<D> &weights, const bf16 *rows) {
	enum { WIDTH = panels<D>::WIDTH };
	int lane = threadIdx.x % 32;
#pragma unroll
	for (int k = 0; k < panels<D>::SLICE / 8; k += 2) {
		fragment<bf16> w;
#pragma unroll
		for (int i = 0; i < 4; i++) w.r[i] = rounded_pair(weights.v[k + i / 2][i % 2 * 2], weights.v[k + i / 2][i % 2 * 2 + 1]);
#pragma unroll
		for (int j = 0; j < D / 8; j += 2) {
			fragment<bf16> b = right_across(rows + k * 8 * WIDTH + j * 8, WIDTH, lane);
			multiply_add(out[j], w, b.r[0], b.r[1]);
			multiply_add(out[j + 1], w, b.r[2], b.r[3]);
		}
	}
}

// put_rows writes a warp's 16 rows of a gradient of the positions from t on.
template <int D> INLINE void put_rows(const attention_args &a, const float (&out)[D / 8][4], channels_of c, int t, float factor) {
	int row = t + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
#pragma unroll
	for (int i = 0; i < 2; i++) {
		if (row + i * 8 >= a.length) continue;
		bf16 *to = GLOBAL(bf16, c.tensor) + c.first + (row + i * 8) * c.step + column;
#pragma unroll
		for (int j = 0; j < D / 8; j++) {
			if (j * 8 + column >= a.dim) continue;
			float x = out[j][i * 2] * factor, y = out[j][i * 2 + 1] * factor;
			if (a.add) {
				unsigned old = *(const unsigned *)(to + j * 8);
				x += low_half(old), y += high_half(old);
			}
			store_pair(to + j * 8, x, y);
		}
	}
}

#define LOG2_E 1.44269504f

// saved_sum is log2(sum(exp)) of a query's row of scores, saved_mean the sum of dy*y. A query behind the length sees nothing.
INLINE float saved_sum(const attention_args &a, i64 row, int t) {
	return t < a.length ? GLOBAL(const float, a.rows)[row * a.length + t] * LOG2_E : __uint_as_float(0x7f800000u);
}
INLINE float saved_mean(const attention_args &a, i64 row, int t) {
	return t < a.length ? GLOBAL(const float, a.means)[row * a.length + t] : 0;
}

// flash_gradients makes one side's gradients. With KEYS a block has FIXED keys of a head of keys and values; it walks over the queries that
// see them, of all heads that share it. Else a block has FIXED queries of a head, and walks over the keys that they see. Blocks are tiles of
// positions of heads of samples; of a head those come first that take longest.
template <int D, bool KEYS> INLINE void flash_gradients(const attention_args &a) {
	enum { ROWS = panels<D>::ROWS, SLICE = panels<D>::SLICE };
	DYNAMIC_SHARED(char, memory);
	panels<D> &p = *(panels<D> *)memory;
	const int parts = (a.length + FIXED - 1) / FIXED, part = blockIdx.x % parts, heads = KEYS ? a.kv : a.heads, group = a.heads / a.kv;
	const int head = blockIdx.x / parts % heads, shared = KEYS ? head : head / group;
	const i64 n = blockIdx.x / parts / heads;
	const int held = (KEYS ? part : parts - 1 - part) * FIXED, first = KEYS ? held : 0;
	const int end = KEYS || held + FIXED > a.length ? a.length : held + FIXED;
	const int turns = (end - first + ROWS - 1) / ROWS * (KEYS ? group : 1);
	const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4, column = lane % 4 * 2; // of the lane's first sum
	int t = first, query = KEYS ? head * group : head; // of a turn: the first of the moving positions, and the head of queries
	auto fetch = [&](int stage) {
		bring_rows<D>(a, p.moving[stage][0], projection(a, a.x, n, KEYS ? query : a.heads + shared), t);
		bring_rows<D>(a, p.moving[stage][1], KEYS ? output_gradient(a, n, query) : projection(a, a.x, n, a.heads + a.kv + shared), t);
	};
	// A thread brings one value for each turn: the first half of the threads sums, the others means.
	const int half = threadIdx.x / (FLASH_THREADS / 2), mine = threadIdx.x % (FLASH_THREADS / 2);
	auto statistic = [&] { return half ? saved_mean(a, n * a.heads + query, t + mine) : saved_sum(a, n * a.heads + query, t + mine); };
	auto put_statistic = [&](int stage, float v) {
		if (mine < ROWS) (half ? p.means : p.sums)[stage][mine] = v;
	};

	bring_rows<D>(a, p.fixed[0], projection(a, a.x, n, KEYS ? a.heads + shared : head), held);
	bring_rows<D>(a, p.fixed[1], KEYS ? projection(a, a.x, n, a.heads + a.kv + shared) : output_gradient(a, n, head), held);
	fetch(0);
	end_group();
	float next = 0, sums[2], means[2];
	if (KEYS) put_statistic(0, statistic());
	else
		for (int i = 0; i < 2; i++) {
			sums[i] = saved_sum(a, n * a.heads + head, held + row + i * 8);
			means[i] = saved_mean(a, n * a.heads + head, held + row + i * 8);
		}
	const float factor = a.scale * LOG2_E;
	float out[D / 8][4] = {}, values_[KEYS ? D / 8 : 1][4] = {};
	for (int turn = 0; turn < turns; turn++) {
		const int stage = turn % 2, now = t;
		wait_groups<0>();
		__syncthreads(); // the stage is there, and nobody reads the other one any more
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
			const int warp = held + threadIdx.x / 32 * 16;
			if (KEYS ? now + c + SLICE <= warp : now + c > warp + 15) continue;
			tile<D> weights = {}, slopes = {};
			add_products<D>(weights, slopes, p, stage, c);
#pragma unroll
			for (int j = 0; j < SLICE / 8; j++)
#pragma unroll
				for (int i = 0; i < 4; i++) {
					const int moving = c + j * 8 + column + i % 2;
					float sum = KEYS ? p.sums[stage][moving] : sums[i / 2], mean = KEYS ? p.means[stage][moving] : means[i / 2];
					weights.v[j][i] = power(weights.v[j][i] * factor - sum);
					slopes.v[j][i] = weights.v[j][i] * (slopes.v[j][i] - mean);
				}
			if (KEYS ? now < held + FIXED || now + ROWS > a.length : now + ROWS > held)
#pragma unroll
				for (int j = 0; j < SLICE / 8; j++)
#pragma unroll
					for (int i = 0; i < 4; i++) {
						const int still = held + row + i / 2 * 8, moving = now + c + j * 8 + column + i % 2;
						if (KEYS ? still <= moving && moving < a.length : moving <= still) continue;
						weights.v[j][i] = slopes.v[j][i] = 0;
					}
			if constexpr (KEYS) add_weighted<D>(values_, weights, p.moving[stage][1][c]);
			add_weighted<D>(out, slopes, p.moving[stage][0][c]);
		}
		if (KEYS && turn + 1 < turns) put_statistic(1 - stage, next);
	}
	put_rows<D>(a, out, projection(a, a.dx, n, KEYS ? a.heads + shared : head), held, a.scale);
	if constexpr (KEYS) put_rows<D>(a, values_, projection(a, a.dx, n, a.heads + a.kv + shared), held, 1);
}

// GRADIENTS(D, queries, keys): and how many blocks of each a multiprocessor is to have room for in its registers.
#define GRADIENTS(D, queries, keys) \
	KERNEL_BOUNDS(flash_queries_bf16_d##D, struct attention_args, FLASH_THREADS, queries) { flash_gradients<D, false>(a); } \
	KERNEL_BOUNDS(flash_keys_bf16_d##D, struct attention_args, FLASH_THREADS, keys) { flash_gradients<D, true>(a); }

GRADIENTS(32, 4, 4)
GRADIENTS(64, 4, 3)
GRADIENTS(96, 3, 2)
GRADIENTS(128, 3, 2)
