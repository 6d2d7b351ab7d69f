// Convolutions of bf16 on the tensor cores of Hopper alone (sm_90a): two groups of four warps multiply by wgmma, which reads both factors
// from shared memory in the background. Slabs arrive by cp.async in a ring of COUNT stages, while up to two slabs are multiplied. Sums run in
// float32, in an order that the shape and the tile decide.
//
// Each slab k has four steps.
//   1. Every thread waits for its copies of the slab, and shows them to wgmma (fence.proxy.async).
//   2. At a barrier the slab is complete, and all warps have waited for products of slab k - 2.
//   3. Products of the slab begin, and copies of slab k + COUNT - 2 to the stage of slab k - 2.
//   4. Every warp waits for products of slab k - 1.
#include "tile.cuh"
#include "wgmma.cuh"

// Slabs have DEEP inner indices, STEP of them in a product. Blocks of a multiprocessor share STAGE_BYTES of stages.
enum { BM = 128, DEEP = 64, STEP = 16, GROUP = 128, STAGE_BYTES = 192 << 10 };

// warps are one below the other; each computes 16 rows of the tile.
template <int BN> struct warps {
	enum { THREADS = BM / 64 * GROUP, ROWS = BM, COLUMNS = BN, M = 16, N = BN };
	int lane, row, column;

	INLINE warps() { lane = threadIdx.x % 32, row = threadIdx.x / 32 * M, column = 0; }
};

// stages are A's lines and then B's; apart is for slabs that lie across. A thread brings a vector of every LINES-th line.
template <int BN, int BLOCKS> struct stages {
	enum { LANES = LINE / 16, LINES = warps<BN>::THREADS / LANES, STAGE = (BM + BN) * LINE, COUNT = STAGE_BYTES / BLOCKS / STAGE };
	char *begin;
	u64 slab;
	int lane, line, place; // the thread's vector and line, and where the swizzle has the vector

	INLINE stages(char *memory, int apart) {
		begin = swizzled_memory(memory);
		slab = slab_at(begin, apart);
		lane = threadIdx.x % LANES, line = threadIdx.x / LANES;
		place = line * LINE + (lane ^ line % LANES) * 16;
	}
	INLINE bf16 *to(int stage) const { return (bf16 *)(begin + stage * STAGE + place); }
	INLINE u64 left(int stage) const { return further(slab, stage * STAGE + threadIdx.x / GROUP * 64 * LINE); }
	INLINE u64 right(int stage) const { return further(slab, stage * STAGE + BM * LINE); }
};

// multiply begins the products of a slab: 64 rows of A for each group of warps, and all columns of B.
template <bool ACROSS, int N> INLINE void multiply(float (&sums)[N][4], u64 left, u64 right) {
	enum { BYTES = ACROSS ? STEP * LINE : STEP * 2 };
	begin_products();
#pragma unroll
	for (int k = 0; k < DEEP / STEP; k++) multiply_add<ACROSS>(sums, further(left, k * BYTES), further(right, k * BYTES));
	end_products();
}

// run adds up the products of slabs. The function fetch(slab, to) begins to bring a slab, zeros for one behind the last.
template <bool ACROSS, int BN, int BLOCKS, typename F>
INLINE void run(float (&sums)[BN / 8][4], const stages<BN, BLOCKS> &in, share s, F fetch) {
	enum { COUNT = stages<BN, BLOCKS>::COUNT, AHEAD = COUNT - 2 };
#pragma unroll 1
	for (int k = 0; k < AHEAD; k++) {
		fetch(s.first + k, in.to(k));
		end_group();
	}
	for (int k = s.first, stage = 0; k < s.end; k++) {
		wait_groups<AHEAD - 1>();
		show_copies();
		__syncthreads();
		multiply<ACROSS>(sums, in.left(stage), in.right(stage));
		fetch(k + AHEAD, in.to(stage < 2 ? stage + AHEAD : stage - 2));
		end_group();
		wait_products<1>();
		stage = stage == COUNT - 1 ? 0 : stage + 1;
	}
	wait_products<0>();
	wait_groups<0>();
	settle(sums);
}

// wgmma_window computes a tile of Y or DX. A has rows of windows, B columns of packed weights.
template <int BN, int BLOCKS> INLINE void wgmma_window(const conv_args &a) {
	DYNAMIC_SHARED(char, memory);
	enum { VECTOR = wide<bf16>::elements, LINES = stages<BN, BLOCKS>::LINES };
	const geometry g = a.g;
	const view v = view_of(g, blockIdx.z);
	int rows = rows_of(g, v), row0 = blockIdx.x * BM, column0 = blockIdx.y * BN;
	if (row0 >= rows) return;
	share s = share_of(slabs_of(v, DEEP), g.splits, blockIdx.z % g.splits);
	cursor c = cursor_at(v, s.first, DEEP);
	stages<BN, BLOCKS> in(memory, VECTOR * 2);
	int lane = in.lane * VECTOR;
	pixel at[BM / LINES];
#pragma unroll
	for (int i = 0; i < BM / LINES; i++) at[i] = pixel_of(v, row0 + in.line + i * LINES, rows, lane);
	const bf16 *image = GLOBAL(const bf16, a.image), *packed = GLOBAL(const bf16, a.other);
	i64 panel = ((i64)v.panel * g.slabs * g.columns + column0 + in.line) * DEEP + lane;
	float sums[1][BN / 8][4] = {};
	run<false>(sums[0], in, s, [&](int slab, bf16 *to) {
		sight seen = sight_of(v, c, lane);
		if (slab >= s.end) seen.e = v.inner;
#pragma unroll
		for (int i = 0; i < BM / LINES; i++) bring<VECTOR>(to + i * LINES * DEEP, image, [&](int k) { return seen_at(v, at[i], seen, k); });
		i64 from = slab < s.end ? panel + (i64)slab * g.columns * DEEP : 0;
#pragma unroll
		for (int i = 0; i < BN / LINES; i++) copy_async(to + (BM + i * LINES) * DEEP, packed + from + i * LINES * DEEP, slab >= s.end);
		advance(c, v, DEEP);
	});
	write_window<bf16, warps<BN>>(a, sums, in.begin, view_of(g, anew(blockIdx.z), anew(g.backward)));
}

// wgmma_pixel computes a tile of the weight's gradient, or a part of it. Lines are pixels: A has output channels, B taps and input
// channels, 64 in a line.
template <int BN, int BLOCKS> INLINE void wgmma_pixel(const conv_args &a) {
	DYNAMIC_SHARED(char, memory);
	enum { VECTOR = wide<bf16>::elements, LINES = stages<BN, BLOCKS>::LINES, SIDE = DEEP * DEEP };
	const geometry g = a.g;
	int group = blockIdx.z / g.splits, width = g.o / g.groups, columns = g.kh * g.kw * (g.c / g.groups);
	int row0 = blockIdx.x * BM, column0 = blockIdx.y * BN;
	share s = share_of(g.slabs, g.splits, blockIdx.z % g.splits);
	stages<BN, BLOCKS> in(memory, DEEP * LINE);
	int lane = in.lane * VECTOR, end = s.end * DEEP < g.rows ? s.end * DEEP : g.rows;
	column seen[BN / 64];
#pragma unroll
	for (int j = 0; j < BN / 64; j++) seen[j] = column_of(g, group, column0 + lane + j * 64);
	walker at[DEEP / LINES], by = walker_at(g, DEEP);
#pragma unroll
	for (int i = 0; i < DEEP / LINES; i++) at[i] = walker_at(g, s.first * DEEP + in.line + i * LINES);
	const bf16 *dy = GLOBAL(const bf16, a.other), *x = GLOBAL(const bf16, a.image);
	float sums[1][BN / 8][4] = {};
	run<true>(sums[0], in, s, [&](int slab, bf16 *to) {
#pragma unroll
		for (int i = 0; i < DEEP / LINES; i++) {
			int p = slab * DEEP + in.line + i * LINES;
			i64 from = (i64)p * g.o + group * width;
#pragma unroll
			for (int j = 0; j < BM / 64; j++) {
				int o = row0 + lane + j * 64;
				bring<VECTOR>(to + i * LINES * DEEP + j * SIDE, dy, [&](int) { return place{from + o, (bool)(p < end & o < width)}; });
			}
#pragma unroll
			for (int j = 0; j < BN / 64; j++)
				bring<VECTOR>(to + (BM + i * LINES) * DEEP + j * SIDE, x, [&](int) { return input_at(g, at[i], seen[j], p < end); });
			advance(at[i], g, by);
		}
	});
	i64 base = ((i64)(blockIdx.z % g.splits) * g.o + group * width) * columns;
	write_tile<float, warps<BN>>(a, sums, in.begin, width, columns, 0, [&](int r) { return base + (i64)r * columns; });
}

#define PRODUCTS(BN, blocks) \
	KERNEL_BOUNDS(wgmma_window_bf16_128x##BN##_v8, struct conv_args, warps<BN>::THREADS, blocks) { wgmma_window<BN, blocks>(a); } \
	KERNEL_BOUNDS(wgmma_pixel_bf16_128x##BN##_v8, struct conv_args, warps<BN>::THREADS, blocks) { wgmma_pixel<BN, blocks>(a); }

PRODUCTS(256, 1)
PRODUCTS(128, 2)
PRODUCTS(64, 2)
