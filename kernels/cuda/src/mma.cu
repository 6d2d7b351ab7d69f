// Convolutions of bf16 and tf32 on tensor cores: 4 warps make a tile of the product from slabs in shared memory, of which STAGES are
// there or on their way. Sums run in float32, in an order that the shape and the tile decide.
#include "tile.cuh"

enum { MMA_THREADS = 128, STAGES = 4 };

// slabs have DEEP inner indices, 64 bytes, for STEPS multiplications; a window product's rows have 16 bytes more.
template <typename E> struct slabs {
	enum { VECTOR = wide<E>::elements, STEP = 2 * VECTOR, STEPS = 2, DEEP = STEPS * STEP, WIDTH = DEEP + VECTOR };
};

// warps of a block are two by two; each computes M x N of the tile.
template <int BM, int BN> struct warps {
	enum { THREADS = MMA_THREADS, ROWS = BM, COLUMNS = BN, M = BM / 2, N = BN / 2 };
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
	write_window<E, warps<BM, BN>>(a, sum.c, memory, view_of(g, anew(blockIdx.z), anew(g.backward)));
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
	write_tile<float, warps<BM, BN>>(a, sum.c, memory, width, columns, 0, [&](int r) { return base + (i64)r * columns; });
}

#define PRODUCT(E, BM, BN, V, blocks) \
	KERNEL_BOUNDS(mma_window_##E##_##BM##x##BN##_v##V, struct conv_args, MMA_THREADS, blocks) { mma_window<E, BM, BN, V>(a); } \
	KERNEL_BOUNDS(mma_pixel_##E##_##BM##x##BN##_v##V, struct conv_args, MMA_THREADS, blocks) { mma_pixel<E, BM, BN, V>(a); }
#define PRODUCTS(E, V) PRODUCT(E, 128, 128, V, 2) PRODUCT(E, 128, 64, V, 3) PRODUCT(E, 64, 128, V, 3) PRODUCT(E, 64, 64, V, 4)

PRODUCTS(bf16, 8)
PRODUCTS(bf16, 1)
PRODUCTS(tf32, 4)
PRODUCTS(tf32, 1)
