// Convolutions of bf16 and tf32 on tensor cores: 4 warps make a tile of the product from slabs in shared memory, of which STAGES are
// there or on their way. Sums run in float32, in an order that the shape and the tile decide.
#include "conv.cuh"
#include "mma.cuh"

// PAD: values behind each row of a pixel product's slab, which keep rows in different banks.
enum { MMA_THREADS = 128, STAGES = 4, PAD = 8 };

// slabs have DEEP inner indices, 64 bytes, for STEPS multiplications; a window product's rows have 16 bytes more.
template <typename E> struct slabs {
	enum { VECTOR = wide<E>::elements, STEP = 2 * VECTOR, STEPS = 2, DEEP = STEPS * STEP, WIDTH = DEEP + VECTOR };
};

// warps of a block are two by two; each computes M x N of the tile.
template <int BM, int BN> struct warps {
	enum { M = BM / 2, N = BN / 2 };
	int lane, row, column; // where the warp's part of the tile begins

	INLINE warps() {
		int warp = threadIdx.x / 32;
		lane = threadIdx.x % 32, row = warp / 2 * M, column = warp % 2 * N;
	}
};

template <int BM, int BN> struct sums {
	float c[warps<BM, BN>::M / 16][warps<BM, BN>::N / 8][4];
};

// factors of one step of a warp.
template <typename E, int BM, int BN> struct factors {
	fragment<E> a[warps<BM, BN>::M / 16], b[warps<BM, BN>::N / 16];
};

// read loads factors: left(row) A's 16 rows from there, right(column) B's 16 columns.
template <typename E, int BM, int BN, typename L, typename R> INLINE void read(factors<E, BM, BN> &f, L left, R right) {
#pragma unroll
	for (int i = 0; i < warps<BM, BN>::M / 16; i++) f.a[i] = left(i * 16);
#pragma unroll
	for (int j = 0; j < warps<BM, BN>::N / 16; j++) f.b[j] = right(j * 16);
}

template <typename E, int BM, int BN> INLINE void multiply(sums<BM, BN> &s, const factors<E, BM, BN> &f) {
#pragma unroll
	for (int i = 0; i < warps<BM, BN>::M / 16; i++)
#pragma unroll
		for (int j = 0; j < warps<BM, BN>::N / 8; j++)
			multiply_add(s.c[i][j], f.a[i], f.b[j / 2].r[j % 2 * 2], f.b[j / 2].r[j % 2 * 2 + 1]);
}

// row_offsets is room for the offset of each row of a tile in the result.
INLINE i64 *row_offsets() {
	__shared__ i64 offsets[128];
	return offsets;
}

// write_tile writes a block's tile, of which rows and columns are in the result; at gives the offset of a row's column 0 there. The tile goes
// through the memory of the stages, so that neighbouring threads write neighbouring vectors.
template <typename T, int BM, int BN, typename F>
INLINE void write_tile(const conv_args &a, const sums<BM, BN> &s, char *memory, int rows, int columns, int group, F at) {
	enum { WIDTH = BN + PAD, VECTORS = BN / 4 };
	typedef warps<BM, BN> W;
	i64 *const offsets = row_offsets();
	float *tile = (float *)memory;
	int row0 = blockIdx.x * BM, column0 = blockIdx.y * BN;
	W w;
	__syncthreads();
	for (int r = threadIdx.x; r < BM; r += MMA_THREADS) offsets[r] = row0 + r < rows ? at(row0 + r) : -1;
#pragma unroll
	for (int i = 0; i < W::M / 8; i++)
#pragma unroll
		for (int j = 0; j < W::N / 8; j++) {
			const float *pair = s.c[i / 2][j] + i % 2 * 2;
			store_pair(tile + (w.row + i * 8 + w.lane / 4) * WIDTH + w.column + j * 8 + w.lane % 4 * 2, pair[0], pair[1]);
		}
	__syncthreads();
#pragma unroll 4
	for (int k = threadIdx.x; k < BM * VECTORS; k += MMA_THREADS) {
		int r = k / VECTORS, within = k % VECTORS * 4, c = column0 + within;
		i64 offset = offsets[r];
		values<4> x;
		load(x, tile + r * WIDTH + within);
		if (offset >= 0 && c < columns) write_row<T>(a, offset + c, x, columns - c, group * columns + c, columns % 4 == 0);
	}
}

// bring puts 16 bytes into shared memory: at(k) gives the place of value k. V > 1: together.
template <int V, typename E, typename F> INLINE void bring(E *to, const E *from, F at) {
	if constexpr (V > 1) {
		place p = at(0);
		copy_async(to, from + (p.inside ? p.at : 0), !p.inside);
	} else {
#pragma unroll 2
		for (int k = 0; k < wide<E>::elements; k++) {
			place p = at(k);
			to[k].bits = p.inside ? from[p.at].bits : 0;
		}
	}
}

// run fills the stages in turn and adds up products. The function fetch(slab, stage) begins to bring a slab, zeros for one behind the last.
// The function load(factors, stage, k) reads the factors of the step at inner index k. Each step's factors are on their way while the step
// before multiplies.
template <typename E, int BM, int BN, typename F, typename L> INLINE void run(sums<BM, BN> &sum, share s, F fetch, L load) {
	typedef slabs<E> S;
	factors<E, BM, BN> f[2];
#pragma unroll 1
	for (int k = 0; k < STAGES - 1; k++) {
		fetch(s.first + k, k);
		end_group();
	}
	wait_groups<STAGES - 2>();
	__syncthreads();
	load(f[0], 0, 0);
	for (int k = s.first, stage = 0; k < s.end; k++) {
		int behind = stage == STAGES - 1 ? 0 : stage + 1;
		load(f[1], stage, S::STEP);
		fetch(k + STAGES - 1, stage == 0 ? STAGES - 1 : stage - 1);
		end_group();
		multiply(sum, f[0]);
		wait_groups<STAGES - 2>();
		__syncthreads();
		load(f[0], behind, 0);
		multiply(sum, f[1]);
		stage = behind;
	}
	wait_groups<0>();
}

// write_window writes a block's tile of a window product, or its part of it.
template <typename E, int BM, int BN> INLINE void write_window(const conv_args &a, const sums<BM, BN> &sum, char *memory, const view &v) {
	int rows = rows_of(a.g, v);
	i64 base = (i64)v.group * v.columns, part = (i64)(blockIdx.z % a.g.splits) * rows * v.channels;
	if (a.g.splits == 1)
		write_tile<typename stored<E>::type>(a, sum, memory, rows, v.columns, v.group, [&](int r) { return base + result_at(v, a.g, r); });
	else write_tile<float>(a, sum, memory, rows, v.columns, v.group, [&](int r) { return base + part + (i64)r * v.channels; });
}

// mma_window computes a tile of Y or DX. A stage has BM rows of windows, then BN columns of weights, DEEP values each.
template <typename E, int BM, int BN, int V> INLINE void mma_window(const conv_args &a) {
	DYNAMIC_SHARED(char, memory);
	E *const stages = (E *)memory;
	enum { VECTOR = slabs<E>::VECTOR, DEEP = slabs<E>::DEEP, WIDTH = slabs<E>::WIDTH };
	enum { LANES = DEEP / VECTOR, STEP = MMA_THREADS / LANES, STAGE = (BM + BN) * WIDTH };
	const geometry g = a.g;
	const view v = view_of(g, blockIdx.z);
	int rows = rows_of(g, v), row0 = blockIdx.x * BM, column0 = blockIdx.y * BN;
	if (row0 >= rows) return;
	share s = share_of(slabs_of(v, DEEP), g.splits, blockIdx.z % g.splits);
	cursor c = cursor_at(v, s.first, DEEP);
	int lane = threadIdx.x % LANES * VECTOR, row = threadIdx.x / LANES;
	pixel at[BM / STEP];
#pragma unroll
	for (int i = 0; i < BM / STEP; i++) at[i] = pixel_of(v, row0 + row + i * STEP, rows, lane);
	const E *image = GLOBAL(const E, a.image), *packed = GLOBAL(const E, a.other);
	i64 panel = ((i64)v.panel * g.slabs * g.columns + column0 + row) * DEEP + lane;
	sums<BM, BN> sum = {};
	warps<BM, BN> w;
	run<E>(sum, s, [&](int slab, int stage) {
		E *to = stages + stage * STAGE + row * WIDTH + lane;
		sight seen = sight_of(v, c, lane);
		if (slab >= s.end) seen.e = v.inner;
#pragma unroll
		for (int i = 0; i < BM / STEP; i++) bring<V>(to + i * STEP * WIDTH, image, [&](int k) { return seen_at(v, at[i], seen, k); });
		i64 from = slab < s.end ? panel + (i64)slab * g.columns * DEEP : 0;
#pragma unroll
		for (int i = 0; i < BN / STEP; i++) copy_async(to + (BM + i * STEP) * WIDTH, packed + from + i * STEP * DEEP, slab >= s.end);
		advance(c, v, DEEP);
	}, [&](factors<E, BM, BN> &f, int stage, int k) {
		const E *left = stages + stage * STAGE + (w.row + w.lane % 16) * WIDTH + w.lane / 16 * VECTOR + k;
		const E *right = stages + stage * STAGE + (BM + w.column + w.lane / 16 * 8 + w.lane % 8) * WIDTH + w.lane / 8 % 2 * VECTOR + k;
		read(f, [&](int r) { return round_factors(load_matrices(left + r * WIDTH)); }, [&](int n) { return load_matrices(right + n * WIDTH); });
	});
	write_window<E>(a, sum, memory, view_of(g, anew(blockIdx.z), anew(g.backward)));
}

// side is the part of a pixel product's slab that a thread brings: VECTORS vectors of ROWS pixels, LANES apart. LANES threads bring
// neighbouring vectors.
template <typename E, int WIDE> struct side {
	enum { VECTOR = slabs<E>::VECTOR, LANES = 8, VECTORS = WIDE / VECTOR / LANES, STEP = MMA_THREADS / LANES, ROWS = slabs<E>::DEEP / STEP };
	enum { WIDTH = WIDE + PAD, APART = LANES * VECTOR };
};

// mma_pixel computes a tile of the weight's gradient, or a part of it. A stage has DEEP pixels of BM output channels,
// then DEEP pixels of BN taps and input channels.
template <typename E, int BM, int BN, int V> INLINE void mma_pixel(const conv_args &a) {
	DYNAMIC_SHARED(char, memory);
	E *const stages = (E *)memory;
	typedef side<E, BM> M;
	typedef side<E, BN> N;
	enum { VECTOR = slabs<E>::VECTOR, DEEP = slabs<E>::DEEP, STAGE = DEEP * (M::WIDTH + N::WIDTH) };
	const geometry g = a.g;
	int group = blockIdx.z / g.splits, width = g.o / g.groups, columns = g.kh * g.kw * (g.c / g.groups);
	int row0 = blockIdx.x * BM, column0 = blockIdx.y * BN;
	share s = share_of(g.slabs, g.splits, blockIdx.z % g.splits);
	int lane = threadIdx.x % M::LANES * VECTOR, row = threadIdx.x / M::LANES, end = s.end * DEEP < g.rows ? s.end * DEEP : g.rows;
	column seen[N::VECTORS];
#pragma unroll
	for (int j = 0; j < N::VECTORS; j++) seen[j] = column_of(g, group, column0 + lane + j * N::APART);
	walker at[N::ROWS], by = walker_at(g, DEEP);
#pragma unroll
	for (int i = 0; i < N::ROWS; i++) at[i] = walker_at(g, s.first * DEEP + row + i * N::STEP);
	const E *dy = GLOBAL(const E, a.other), *x = GLOBAL(const E, a.image);
	sums<BM, BN> sum = {};
	warps<BM, BN> w;
	run<E>(sum, s, [&](int slab, int stage) {
		E *to = stages + stage * STAGE + lane;
#pragma unroll
		for (int i = 0; i < M::ROWS; i++) {
			int p = slab * DEEP + row + i * M::STEP;
			i64 from = (i64)p * g.o + group * width;
#pragma unroll
			for (int j = 0; j < M::VECTORS; j++) {
				int o = row0 + lane + j * M::APART;
				bring<V>(to + (row + i * M::STEP) * M::WIDTH + j * M::APART, dy,
					[&](int k) { return place{from + o + k, (bool)(p < end & o + k < width)}; });
			}
#pragma unroll
			for (int j = 0; j < N::VECTORS; j++) {
				column c = seen[j];
				bring<V>(to + DEEP * M::WIDTH + (row + i * N::STEP) * N::WIDTH + j * N::APART, x, [&](int) {
					place from = input_at(g, at[i], c, p < end);
					if constexpr (V == 1) next(c, g, group);
					return from;
				});
			}
			advance(at[i], g, by);
		}
	}, [&](factors<E, BM, BN> &f, int stage, int k) {
		const E *left = stages + stage * STAGE + k * M::WIDTH + w.row;
		const E *right = stages + stage * STAGE + DEEP * M::WIDTH + k * N::WIDTH + w.column;
		read(f, [&](int r) { return left_across(left + r, M::WIDTH, w.lane); }, [&](int n) { return right_across(right + n, N::WIDTH, w.lane); });
	});
	i64 base = ((i64)(blockIdx.z % g.splits) * g.o + group * width) * columns;
	write_tile<float>(a, sum, memory, width, columns, 0, [&](int r) { return base + (i64)r * columns; });
}

#define PRODUCT(E, BM, BN, V, blocks) \
	KERNEL_BOUNDS(mma_window_##E##_##BM##x##BN##_v##V, struct conv_args, MMA_THREADS, blocks) { mma_window<E, BM, BN, V>(a); } \
	KERNEL_BOUNDS(mma_pixel_##E##_##BM##x##BN##_v##V, struct conv_args, MMA_THREADS, blocks) { mma_pixel<E, BM, BN, V>(a); }
#define PRODUCTS(E, V) PRODUCT(E, 128, 128, V, 2) PRODUCT(E, 128, 64, V, 3) PRODUCT(E, 64, 128, V, 3) PRODUCT(E, 64, 64, V, 4)

PRODUCTS(bf16, 8)
PRODUCTS(bf16, 1)
PRODUCTS(tf32, 4)
PRODUCTS(tf32, 1)
