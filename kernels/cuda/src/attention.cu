// Self-attention by blocks of TILE queries and TILE keys (Dao: FlashAttention-2, 2023), in float32: the matrix of scores is
// never in memory. A block computes TILE channels of its result, so that any head fits; for heads of more than TILE channels each
// such block makes the scores anew. Sums run in an order that depends on the shape alone; every gradient has one block that adds
// all its terms.
#include "terms.cuh"

enum { TILE = 64, DEPTH = 16, ATT_THREADS = 256, LANES = 16, EACH = TILE / LANES }; // a thread has EACH x EACH of a tile

// A thread's rows are ty + 16*i, its columns tx + 16*j.
INLINE int first_row() { return threadIdx.x / LANES; }
INLINE int first_column() { return threadIdx.x % LANES; }

struct tile_sums {
	float v[EACH][EACH];
};

// rows are TILE or fewer rows of a matrix, step elements apart.
template <typename T> struct rows {
	const T *at;
	i64 step;
	int count;
	INLINE float value(int r, int c, int width) const { return r < count && c < width ? to_float(at[r * step + c]) : 0; }
};

// product_panels holds the panels that a product reads. All products of a kernel share them: a block may declare 48 KiB.
union product_panels {
	struct {
		float left[TILE][DEPTH + 1], right[TILE][DEPTH + 1];
	} rows;
	float columns[DEPTH][TILE + 1];
};

// by_row is a * b^T: the products of all rows of two matrices of so many columns.
template <typename T> INLINE tile_sums by_row(product_panels &p, rows<T> a, rows<T> b, int columns) {
	auto &left = p.rows.left, &right = p.rows.right;
	tile_sums s = {};
	for (int k0 = 0; k0 < columns; k0 += DEPTH) {
		__syncthreads();
		for (int i = threadIdx.x; i < TILE * DEPTH; i += ATT_THREADS) {
			left[i / DEPTH][i % DEPTH] = a.value(i / DEPTH, k0 + i % DEPTH, columns);
			right[i / DEPTH][i % DEPTH] = b.value(i / DEPTH, k0 + i % DEPTH, columns);
		}
		__syncthreads();
		for (int k = 0; k < DEPTH; k++) {
			float x[EACH], y[EACH];
#pragma unroll
			for (int i = 0; i < EACH; i++) x[i] = left[first_row() + LANES * i][k], y[i] = right[first_column() + LANES * i][k];
#pragma unroll
			for (int i = 0; i < EACH; i++)
#pragma unroll
				for (int j = 0; j < EACH; j++) s.v[i][j] += x[i] * y[j];
		}
	}
	return s;
}

typedef float square[TILE][TILE + 1];

// add_weighted adds weights * b, or weights^T * b: column c0 + ... of the TILE rows of b, of so many columns.
template <bool TRANSPOSED, typename T> INLINE void add_weighted(product_panels &p, tile_sums &s, const square &weights, rows<T> b, int c0, int columns) {
	auto &right = p.columns;
	for (int k0 = 0; k0 < TILE; k0 += DEPTH) {
		__syncthreads();
		for (int i = threadIdx.x; i < TILE * DEPTH; i += ATT_THREADS) right[i / TILE][i % TILE] = b.value(k0 + i / TILE, c0 + i % TILE, columns);
		__syncthreads();
		for (int k = 0; k < DEPTH; k++) {
			float x[EACH], y[EACH];
#pragma unroll
			for (int i = 0; i < EACH; i++) {
				int r = first_row() + LANES * i;
				x[i] = TRANSPOSED ? weights[k0 + k][r] : weights[r][k0 + k];
				y[i] = right[k][first_column() + LANES * i];
			}
#pragma unroll
			for (int i = 0; i < EACH; i++)
#pragma unroll
				for (int j = 0; j < EACH; j++) s.v[i][j] += x[i] * y[j];
		}
	}
}

// place is a block's part: sample n and a head of it.
template <typename T> struct head {
	const attention_args &a;
	i64 n;
	int query, shared; // heads

	INLINE head(const attention_args &a, i64 n, int query, int shared) : a(a), n(n), query(query), shared(shared) {}
	INLINE i64 offset(int t, int column) const { return (n * a.length + t) * a.channels + (i64)column * a.dim; }
	INLINE int count(int t) const { return a.length - t < TILE ? a.length - t : TILE; }
	INLINE rows<T> of(u64 x, int t, int column) const { return rows<T>{GLOBAL(const T, x) + offset(t, column), a.channels, count(t)}; }
	INLINE rows<T> queries(int t) const { return of(a.x, t, query); }
	INLINE rows<T> keys(int t) const { return of(a.x, t, a.heads + shared); }
	INLINE rows<T> values_(int t) const { return of(a.x, t, a.heads + a.kv + shared); }
	INLINE i64 output(int t) const { return ((n * a.length + t) * a.heads + query) * a.dim; }
	INLINE rows<T> gradients(int t) const { return rows<T>{GLOBAL(const T, a.dy) + output(t), (i64)a.heads * a.dim, count(t)}; }
	INLINE i64 row(int t) const { return (n * a.heads + query) * a.length + t; }
};

// open reports whether query q0+i sees key k0+j.
template <typename T> INLINE bool open(const head<T> &h, int q0, int i, int k0, int j) {
	return (h.a.bidirectional ? k0 + j < h.a.length : k0 + j <= q0 + i) && q0 + i < h.a.length;
}

// reach is the end of the keys that some of the queries from q0 on see.
template <typename T> INLINE int reach(const head<T> &h, int q0) { return h.a.bidirectional ? h.a.length : q0 + h.count(q0); }

// deposit_tile puts a thread's part of TILE rows, from column c0 on of dim, times a factor of each row.
template <typename T, typename F> INLINE void deposit_tile(const tile_sums &s, T *out, i64 step, int count, int c0, int dim, int add, F factor) {
#pragma unroll
	for (int i = 0; i < EACH; i++)
#pragma unroll
		for (int j = 0; j < EACH; j++) {
			int r = first_row() + LANES * i, c = c0 + first_column() + LANES * j;
			if (r < count && c < dim) deposit(out + r * step + c, values<1>{{s.v[i][j] * factor(r)}}, 1, add);
		}
}

// place is a block's in a grid: x tiles of positions of heads of samples, y tiles of channels.
struct place {
	int from, head, channel; // the first position and channel
	i64 sample;
};

INLINE place place_of(const attention_args &a, int heads) {
	int tiles = (a.length + TILE - 1) / TILE;
	return place{(int)(blockIdx.x % tiles) * TILE, (int)(blockIdx.x / tiles % heads), (int)blockIdx.y * TILE, blockIdx.x / tiles / heads};
}

// attention_forward: blocks of queries and channels.
template <typename T> INLINE void attention_forward(const attention_args &a) {
	__shared__ product_panels panels;
	__shared__ square weights;
	__shared__ float largest[TILE], sums[TILE], factors[TILE], parts[TILE][4];
	place p = place_of(a, a.heads);
	int q0 = p.from, c0 = p.channel, t = threadIdx.x;
	head<T> h(a, p.sample, p.head, p.head / (a.heads / a.kv));
	const score_terms terms(a, score_terms::map_of(a, h.n), h.query);
	tile_sums out = {};
	if (t < TILE) largest[t] = __uint_as_float(0xff800000u), sums[t] = 0;
	for (int k0 = 0; k0 < reach(h, q0); k0 += TILE) {
		tile_sums s = by_row(panels, h.queries(q0), h.keys(k0), a.dim);
#pragma unroll
		for (int i = 0; i < EACH; i++)
#pragma unroll
			for (int j = 0; j < EACH; j++) {
				int r = first_row() + LANES * i, c = first_column() + LANES * j;
				weights[r][c] = open(h, q0, r, k0, c) ? s.v[i][j] * a.scale + terms.value(q0 + r, k0 + c) : __uint_as_float(0xff800000u);
			}
		__syncthreads();
		int r = t / 4, part = t % 4 * (TILE / 4);
		float top = largest[r];
		for (int c = 0; c < TILE / 4; c++) top = fmaxf(top, weights[r][part + c]);
		parts[r][t % 4] = top;
		__syncthreads();
		top = fmaxf(fmaxf(parts[r][0], parts[r][1]), fmaxf(parts[r][2], parts[r][3]));
		float sum = 0;
		bool real = q0 + r < a.length;
		for (int c = 0; c < TILE / 4; c++) sum += weights[r][part + c] = real ? expf(weights[r][part + c] - top) : 0;
		__syncthreads();
		parts[r][t % 4] = sum;
		__syncthreads();
		if (t % 4 == 0 && real) {
			factors[r] = expf(largest[r] - top);
			sums[r] = sums[r] * factors[r] + ((parts[r][0] + parts[r][1]) + (parts[r][2] + parts[r][3]));
			largest[r] = top;
		}
		__syncthreads();
#pragma unroll
		for (int i = 0; i < EACH; i++)
#pragma unroll
			for (int j = 0; j < EACH; j++) out.v[i][j] *= q0 + first_row() + LANES * i < a.length ? factors[first_row() + LANES * i] : 0;
		add_weighted<false>(panels, out, weights, h.values_(k0), c0, a.dim);
		__syncthreads();
	}
	deposit_tile(out, GLOBAL(T, a.y) + h.output(q0), (i64)a.heads * a.dim, h.count(q0), c0, a.dim, 0, [&](int r) { return 1 / sums[r]; });
	if (a.rows && c0 == 0 && t < h.count(q0)) GLOBAL(float, a.rows)[h.row(q0) + t] = (float)(largest[t] + log((double)sums[t]));
}
INSTANCES(attention_forward, attention_args)

enum { MEAN_LANES = 8, MEAN_ROWS = ATT_THREADS / MEAN_LANES };

// attention_means: the sum of dy*y of each row of each head, which all gradients of its scores have taken off. MEAN_LANES threads a
// row, 16 bytes at a time where rows are whole vectors.
template <typename T> INLINE void attention_means(const attention_args &a) {
	enum { V = wide<T>::elements };
	i64 i = (i64)blockIdx.x * MEAN_ROWS + threadIdx.x / MEAN_LANES;
	int lane = threadIdx.x % MEAN_LANES;
	float sum = 0;
	if (i < a.total) {
		i64 at = ((i / a.length / a.heads * a.length + i % a.length) * a.heads + i / a.length % a.heads) * a.dim;
		const T *dy = GLOBAL(const T, a.dy) + at, *y = GLOBAL(const T, a.y) + at;
		if (a.dim % V == 0)
			for (int c = lane * V; c < a.dim; c += MEAN_LANES * V) {
				values<V> g, v;
				load(g, dy + c), load(v, y + c);
#pragma unroll
				for (int k = 0; k < V; k++) sum += g.v[k] * v.v[k];
			}
		else
			for (int c = lane; c < a.dim; c += MEAN_LANES) sum += to_float(dy[c]) * to_float(y[c]);
	}
#pragma unroll
	for (int by = MEAN_LANES / 2; by > 0; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
	if (i < a.total && lane == 0) GLOBAL(float, a.means)[i] = sum;
}
INSTANCES(attention_means, attention_args)

// weigh makes a block's weights, and what the scores' gradients are: weights*(dy*v - mean)*factor.
template <typename T> INLINE void weigh(product_panels &panels, const head<T> &h, int q0, int k0, float factor, square &weights, square &slopes) {
	const attention_args &a = h.a;
	const score_terms terms(a, score_terms::map_of(a, h.n), h.query);
	tile_sums s = by_row(panels, h.queries(q0), h.keys(k0), a.dim), d = by_row(panels, h.gradients(q0), h.values_(k0), a.dim);
	__syncthreads();
#pragma unroll
	for (int i = 0; i < EACH; i++)
#pragma unroll
		for (int j = 0; j < EACH; j++) {
			int r = first_row() + LANES * i, c = first_column() + LANES * j;
			bool seen = open(h, q0, r, k0, c);
			float p = seen ? expf(s.v[i][j] * a.scale + terms.value(q0 + r, k0 + c) - GLOBAL(const float, a.rows)[h.row(q0) + r]) : 0;
			weights[r][c] = p;
			slopes[r][c] = seen ? p * (d.v[i][j] - GLOBAL(const float, a.means)[h.row(q0) + r]) * factor : 0;
		}
	__syncthreads();
}

// attention_queries: gradients of queries; blocks as in forward.
template <typename T> INLINE void attention_queries(const attention_args &a) {
	__shared__ product_panels panels;
	__shared__ square weights, slopes;
	place p = place_of(a, a.heads);
	int q0 = p.from, c0 = p.channel;
	head<T> h(a, p.sample, p.head, p.head / (a.heads / a.kv));
	tile_sums out = {};
	for (int k0 = 0; k0 < reach(h, q0); k0 += TILE) {
		weigh(panels, h, q0, k0, a.scale, weights, slopes);
		add_weighted<false>(panels, out, slopes, h.keys(k0), c0, a.dim);
	}
	deposit_tile(out, GLOBAL(T, a.dx) + h.offset(q0, p.head), a.channels, h.count(q0), c0, a.dim, a.add, [](int) { return 1.0f; });
}
INSTANCES(attention_queries, attention_args)

// attention_keys: gradients of keys and values; blocks of keys and channels.
template <typename T> INLINE void attention_keys(const attention_args &a) {
	__shared__ product_panels panels;
	__shared__ square weights, slopes;
	place p = place_of(a, a.kv);
	int shared = p.head, k0 = p.from, c0 = p.channel, group = a.heads / a.kv;
	i64 n = p.sample;
	tile_sums dk = {}, dv = {};
	for (int query = shared * group; query < (shared + 1) * group; query++) {
		head<T> h(a, n, query, shared);
		for (int q0 = a.bidirectional ? 0 : k0; q0 < a.length; q0 += TILE) {
			weigh(panels, h, q0, k0, a.scale, weights, slopes);
			add_weighted<true>(panels, dk, slopes, h.queries(q0), c0, a.dim);
			add_weighted<true>(panels, dv, weights, h.gradients(q0), c0, a.dim);
		}
	}
	head<T> h(a, n, shared * group, shared);
	auto one = [](int) { return 1.0f; };
	deposit_tile(dk, GLOBAL(T, a.dx) + h.offset(k0, a.heads + shared), a.channels, h.count(k0), c0, a.dim, a.add, one);
	deposit_tile(dv, GLOBAL(T, a.dx) + h.offset(k0, a.heads + a.kv + shared), a.channels, h.count(k0), c0, a.dim, a.add, one);
}
INSTANCES(attention_keys, attention_args)

// attention_terms: terms = the gradients of what is added to scores, by head and positions, of a part of the samples, summed in their order.
// A block has TILE x TILE positions of a head.
template <typename T> INLINE void attention_terms(const attention_args &a) {
	__shared__ product_panels panels;
	__shared__ square weights, slopes;
	place p = place_of(a, a.heads);
	int q0 = p.from, k0 = (int)blockIdx.y * TILE, part = (int)p.sample;
	float sums[EACH][EACH] = {};
	for (i64 n = a.samples * part / a.parts; n < a.samples * (part + 1) / a.parts; n++) {
		head<T> h(a, n, p.head, p.head / (a.heads / a.kv));
		weigh(panels, h, q0, k0, 1.0f, weights, slopes);
#pragma unroll
		for (int i = 0; i < EACH; i++)
#pragma unroll
			for (int j = 0; j < EACH; j++) sums[i][j] += slopes[first_row() + LANES * i][first_column() + LANES * j];
		__syncthreads();
	}
#pragma unroll
	for (int i = 0; i < EACH; i++)
#pragma unroll
		for (int j = 0; j < EACH; j++) {
			int t = q0 + first_row() + LANES * i, s = k0 + first_column() + LANES * j;
			if (t < a.length && s < a.length) GLOBAL(float, a.terms)[(((i64)part * a.heads + p.head) * a.length + t) * a.length + s] = sums[i][j];
		}
}
INSTANCES(attention_terms, attention_args)

// attention_table: the gradient of one entry of the table, the sum of those of all scores that it was added to. A block has a row and a head.
template <typename T> INLINE void attention_table(const attention_args &a) {
	__shared__ double parts[ATT_THREADS];
	int row = (int)(blockIdx.x / a.heads), head = (int)(blockIdx.x % a.heads), t = threadIdx.x;
	i64 area = (i64)a.length * a.length;
	double sum = 0;
	for (i64 i = t; i < area; i += ATT_THREADS)
		if (row_of(GLOBAL(const float, a.index)[i], a.table) == row)
			for (int part = 0; part < a.parts; part++) sum += GLOBAL(const float, a.terms)[((i64)part * a.heads + head) * area + i];
	parts[t] = sum;
	for (int by = ATT_THREADS / 2; by > 0; by /= 2) {
		__syncthreads();
		if (t < by) parts[t] += parts[t + by];
	}
	float *to = GLOBAL(float, a.dbias) + (i64)row * a.heads + head;
	if (t == 0) *to = (float)((a.add ? *to : 0) + parts[0]);
}
INSTANCES(attention_table, attention_args)
