// Convolutions of bf16 and tf32 on tensor cores: 8 warps make a tile of the product from slabs in shared memory, of which STAGES are
// there or on their way. Sums run in float32, in an order that the shape and the tile decide.
#include "conv.cuh"
#include "mma.cuh"

enum { STAGES = 3, PAD = 8, WARPS = 8 }; // PAD: values behind each row of a pixel product's slab, which keep rows in different banks

// slabs have DEEP inner indices, 64 bytes; a window product's rows have 16 bytes more.
template <typename E> struct slabs {
	enum { VECTOR = wide<E>::elements, DEEP = 4 * VECTOR, WIDTH = DEEP + VECTOR };
};

// warps of a block are ROWS x COLUMNS; each computes M x N of the tile.
template <int BM, int BN> struct warps {
	enum { ROWS = BM == BN ? 2 : 4, COLUMNS = WARPS / ROWS, M = BM / ROWS, N = BN / COLUMNS };
	int lane, row, column; // where the warp's part of the tile begins

	INLINE warps() {
		int warp = threadIdx.x / 32;
		lane = threadIdx.x % 32, row = warp / COLUMNS * M, column = warp % COLUMNS * N;
	}
};

template <int BM, int BN> struct sums {
	float c[warps<BM, BN>::M / 16][warps<BM, BN>::N / 8][4];
};

// multiply adds the product of one slab; left(row, k) loads A's 16 rows from there, right(k, column) B's 16 columns.
template <typename E, int BM, int BN, typename L, typename R> INLINE void multiply(sums<BM, BN> &s, L left, R right) {
	typedef warps<BM, BN> W;
#pragma unroll
	for (int k = 0; k < slabs<E>::DEEP; k += 2 * slabs<E>::VECTOR) {
		fragment<E> a[W::M / 16], b[W::N / 16];
#pragma unroll
		for (int i = 0; i < W::M / 16; i++) a[i] = left(i * 16, k);
#pragma unroll
		for (int j = 0; j < W::N / 16; j++) b[j] = right(k, j * 16);
#pragma unroll
		for (int i = 0; i < W::M / 16; i++)
#pragma unroll
			for (int j = 0; j < W::N / 8; j++) multiply_add(s.c[i][j], a[i], b[j / 2].r[j % 2 * 2], b[j / 2].r[j % 2 * 2 + 1]);
	}
}

INLINE void load_pair(values<2> &x, const float *p) {
	float2 f = *(const float2 *)p;
	x.v[0] = f.x, x.v[1] = f.y;
}
INLINE void load_pair(values<2> &x, const bf16 *p) {
	unsigned u = *(const unsigned *)p;
	x.v[0] = low_half(u), x.v[1] = high_half(u);
}

// write_pair puts two neighbouring columns of a result's row, n of them inside.
template <typename T> INLINE void write_pair(const conv_args &a, i64 at, float x, float y, int n, int column) {
	T *to = GLOBAL(T, a.out) + at;
	if (a.bias) {
		x += GLOBAL(const float, a.bias)[column];
		if (n >= 2) y += GLOBAL(const float, a.bias)[column + 1];
	}
	if (n >= 2 && at % 2 == 0) {
		values<2> old = {};
		if (a.add) load_pair(old, to);
		if (a.add) x += old.v[0], y += old.v[1];
		return store_pair(to, x, y);
	}
	put(to, a.add ? x + to_float(to[0]) : x);
	if (n >= 2) put(to + 1, a.add ? y + to_float(to[1]) : y);
}

// write_pairs writes a lane's part of a tile; at gives the offset of a row's column 0 in the result.
template <typename T, int BM, int BN, typename F>
INLINE void write_pairs(const conv_args &a, const sums<BM, BN> &s, int row0, int rows, int column0, int columns, int group, F at) {
	typedef warps<BM, BN> W;
	W w;
#pragma unroll
	for (int i = 0; i < W::M / 8; i++) {
		int row = row0 + w.row + i * 8 + w.lane / 4;
		if (row >= rows) continue;
		i64 offset = at(row);
#pragma unroll
		for (int j = 0; j < W::N / 8; j++) {
			int c = column0 + w.column + j * 8 + w.lane % 4 * 2;
			const float *pair = s.c[i / 2][j] + i % 2 * 2;
			if (c < columns) write_pair<T>(a, offset + c, pair[0], pair[1], columns - c, group * columns + c);
		}
	}
}

// write_tile writes a tile. Where rows are whole vectors, each warp takes its part through shared memory, 16 rows at a time, so that
// 16 bytes are written together; else pairs are.
template <typename T, int BM, int BN, typename F>
INLINE void write_tile(const conv_args &a, char *memory, const sums<BM, BN> &s, int row0, int rows, int column0, int columns, int group, F at) {
	typedef warps<BM, BN> W;
	enum { V = wide<T>::elements, WIDTH = W::N + 8, LANES = W::N / V, STEP = 32 / LANES };
	if (columns % V != 0) return write_pairs<T>(a, s, row0, rows, column0, columns, group, at);
	W w;
	float *strip = (float *)memory + threadIdx.x / 32 * 16 * WIDTH, *put = strip + w.lane / 4 * WIDTH + w.lane % 4 * 2;
	int c = column0 + w.column + w.lane % LANES * V;
	__syncthreads(); // nobody reads the stages any more
#pragma unroll
	for (int i = 0; i < W::M / 16; i++) {
#pragma unroll
		for (int j = 0; j < W::N / 8; j++) {
			store_pair(put + j * 8, s.c[i][j][0], s.c[i][j][1]);
			store_pair(put + 8 * WIDTH + j * 8, s.c[i][j][2], s.c[i][j][3]);
		}
		__syncwarp();
#pragma unroll
		for (int r = w.lane / LANES; r < 16; r += STEP) {
			int row = row0 + w.row + i * 16 + r;
			if (row >= rows || c >= columns) continue;
			values<V> x, more;
			load_floats(x, strip + r * WIDTH + w.lane % LANES * V);
			if (a.bias) {
				load_floats(more, GLOBAL(const float, a.bias) + group * columns + c);
#pragma unroll
				for (int k = 0; k < V; k++) x.v[k] += more.v[k];
			}
			deposit(GLOBAL(T, a.out) + at(row) + c, x, V, a.add);
		}
		__syncwarp();
	}
}

// bring puts 16 bytes into shared memory: offset(k) says where value k lies, or -1 for a zero. V > 1: together.
template <int V, typename E, typename F> INLINE void bring(E *to, const E *from, F offset) {
	if constexpr (V > 1) {
		i64 at = offset(0);
		copy_async(to, from + (at < 0 ? 0 : at), at < 0);
	} else {
		for (int k = 0; k < wide<E>::elements; k++) {
			i64 at = offset(k);
			to[k].bits = at < 0 ? 0 : from[at].bits;
		}
	}
}

// run fills the stages in turn and multiplies: fetch(slab, stage) begins to bring a slab, product(stage) multiplies it.
template <typename F, typename P> INLINE void run(share s, F fetch, P product) {
	for (int k = 0; k < STAGES - 1; k++) {
		if (s.first + k < s.end) fetch(s.first + k, k);
		end_group();
	}
	for (int k = s.first, stage = 0; k < s.end; k++, stage = stage + 1 == STAGES ? 0 : stage + 1) {
		wait_groups<STAGES - 2>();
		__syncthreads();
		if (k + STAGES - 1 < s.end) fetch(k + STAGES - 1, stage == 0 ? STAGES - 1 : stage - 1);
		end_group();
		product(stage);
	}
}

// mma_window computes a tile of Y or DX. A stage has BM rows of windows, then BN columns of weights, DEEP values each.
template <typename E, int BM, int BN, int V> INLINE void mma_window(const conv_args &a) {
	DYNAMIC_SHARED(char, memory);
	E *const stages = (E *)memory;
	enum { VECTOR = slabs<E>::VECTOR, DEEP = slabs<E>::DEEP, WIDTH = slabs<E>::WIDTH };
	enum { LANES = DEEP / VECTOR, STEP = CONV_THREADS / LANES, STAGE = (BM + BN) * WIDTH };
	const geometry g = a.g;
	const view v = view_of(g, blockIdx.z);
	int rows = rows_of(g, v), row0 = blockIdx.x * BM, column0 = blockIdx.y * BN;
	if (row0 >= rows) return;
	share s = share_of(slabs_of(v, DEEP), g.splits, blockIdx.z % g.splits);
	cursor c = cursor_at(v, s.first, DEEP);
	int lane = threadIdx.x % LANES * VECTOR, row = threadIdx.x / LANES;
	pixel at[BM / STEP];
#pragma unroll
	for (int i = 0; i < BM / STEP; i++) at[i] = pixel_of(v, row0 + row + i * STEP, rows);
	const E *image = GLOBAL(const E, a.image), *packed = GLOBAL(const E, a.other);
	sums<BM, BN> sum = {};
	warps<BM, BN> w;
	bool idle = row0 + w.row >= rows || column0 + w.column >= v.columns;
	run(s, [&](int slab, int stage) {
		E *to = stages + stage * STAGE + row * WIDTH + lane;
#pragma unroll
		for (int i = 0; i < BM / STEP; i++)
			bring<V>(to + i * STEP * WIDTH, image, [&](int k) { return seen_at(v, at[i], c, c.e + lane + k); });
		i64 from = (((i64)v.panel * g.slabs + slab) * g.columns + column0 + row) * DEEP + lane;
#pragma unroll
		for (int i = 0; i < BN / STEP; i++) copy_async(to + (BM + i * STEP) * WIDTH, packed + from + i * STEP * DEEP, false);
		advance(c, v, DEEP);
	}, [&](int stage) {
		if (idle) return;
		const E *left = stages + stage * STAGE + (w.row + w.lane % 16) * WIDTH + w.lane / 16 * VECTOR;
		const E *right = stages + stage * STAGE + (BM + w.column + w.lane / 16 * 8 + w.lane % 8) * WIDTH + w.lane / 8 % 2 * VECTOR;
		multiply<E, BM, BN>(sum, [&](int r, int k) { return round_factors(load_matrices(left + r * WIDTH + k)); },
			[&](int k, int n) { return load_matrices(right + n * WIDTH + k); });
	});
	i64 base = (i64)v.group * v.columns;
	if (g.splits == 1) {
		write_tile<typename stored<E>::type, BM, BN>(a, memory, sum, row0, rows, column0, v.columns, v.group, [&](int r) { return base + result_at(v, g, r); });
		return;
	}
	base += (i64)(blockIdx.z % g.splits) * rows * v.channels;
	write_tile<float, BM, BN>(a, memory, sum, row0, rows, column0, v.columns, v.group, [&](int r) { return base + (i64)r * v.channels; });
}

// mma_pixel computes a tile of the weight's gradient, or a part of it. A stage has DEEP pixels of BM output channels,
// then DEEP pixels of BN taps and input channels.
template <typename E, int BM, int BN, int V> INLINE void mma_pixel(const conv_args &a) {
	DYNAMIC_SHARED(char, memory);
	E *const stages = (E *)memory;
	enum { VECTOR = slabs<E>::VECTOR, DEEP = slabs<E>::DEEP };
	enum { LEFT = BM + PAD, RIGHT = BN + PAD, STAGE = DEEP * (LEFT + RIGHT) };
	enum { LANES_M = BM / VECTOR, STEP_M = CONV_THREADS / LANES_M, LANES_N = BN / VECTOR, STEP_N = CONV_THREADS / LANES_N };
	const geometry g = a.g;
	int group = blockIdx.z / g.splits, width = g.o / g.groups, columns = g.kh * g.kw * (g.c / g.groups);
	int row0 = blockIdx.x * BM, column0 = blockIdx.y * BN;
	share s = share_of(g.slabs, g.splits, blockIdx.z % g.splits);
	int lane_m = threadIdx.x % LANES_M * VECTOR, row_m = threadIdx.x / LANES_M;
	int lane_n = threadIdx.x % LANES_N * VECTOR, row_n = threadIdx.x / LANES_N;
	column seen[V > 1 ? 1 : VECTOR];
#pragma unroll
	for (int k = 0; k < (V > 1 ? 1 : VECTOR); k++) seen[k] = column_of(g, group, column0 + lane_n + k);
	walker at[DEEP / STEP_N];
#pragma unroll
	for (int i = 0; i < DEEP / STEP_N; i++) at[i] = walker_at(g, s.first * DEEP + row_n + i * STEP_N);
	const E *dy = GLOBAL(const E, a.other), *x = GLOBAL(const E, a.image);
	sums<BM, BN> sum = {};
	warps<BM, BN> w;
	bool idle = row0 + w.row >= width || column0 + w.column >= columns;
	run(s, [&](int slab, int stage) {
		E *to = stages + stage * STAGE;
#pragma unroll
		for (int i = 0; i < DEEP / STEP_M; i++) {
			int p = slab * DEEP + row_m + i * STEP_M, o = row0 + lane_m;
			bring<V>(to + (row_m + i * STEP_M) * LEFT + lane_m, dy,
				[&](int k) { return o + k < width && p < g.rows ? (i64)p * g.o + group * width + o + k : (i64)-1; });
		}
#pragma unroll
		for (int i = 0; i < DEEP / STEP_N; i++) {
			bring<V>(to + DEEP * LEFT + (row_n + i * STEP_N) * RIGHT + lane_n, x, [&](int k) { return input_at(g, at[i], seen[k]); });
			advance(at[i], g, DEEP);
		}
	}, [&](int stage) {
		if (idle) return;
		const E *left = stages + stage * STAGE + w.row, *right = stages + stage * STAGE + DEEP * LEFT + w.column;
		multiply<E, BM, BN>(sum, [&](int r, int k) { return left_across(left + k * LEFT + r, LEFT, w.lane); },
			[&](int k, int n) { return right_across(right + k * RIGHT + n, RIGHT, w.lane); });
	});
	i64 base = ((i64)(blockIdx.z % g.splits) * g.o + group * width) * columns;
	write_tile<float, BM, BN>(a, memory, sum, row0, width, column0, columns, 0, [&](int r) { return base + (i64)r * columns; });
}

#define PRODUCT(E, BM, BN, V, blocks) \
	KERNEL_BOUNDS(mma_window_##E##_##BM##x##BN##_v##V, struct conv_args, CONV_THREADS, blocks) { mma_window<E, BM, BN, V>(a); } \
	KERNEL_BOUNDS(mma_pixel_##E##_##BM##x##BN##_v##V, struct conv_args, CONV_THREADS, blocks) { mma_pixel<E, BM, BN, V>(a); }
#define PRODUCTS(E, V) PRODUCT(E, 128, 128, V, 1) PRODUCT(E, 128, 64, V, 2) PRODUCT(E, 64, 64, V, 2)

PRODUCTS(bf16, 8)
PRODUCTS(bf16, 1)
PRODUCTS(tf32, 4)
PRODUCTS(tf32, 1)
