// Window products of bf16 on the tensor cores of Hopper alone (sm_90a): two groups of four warps multiply by wgmma, which reads both
// factors from shared memory in the background. Slabs arrive by cp.async into STAGES stages while up to two slabs are multiplied. Sums run
// in float32, in an order that the shape and the tile decide.
//
// In iteration k
//   * every thread waits for its copies of slab k, and makes them visible to wgmma (fence.proxy.async);
//   * a barrier: slab k has arrived, and the products of slab k - 2 are complete in all warps;
//   * the products of slab k begin, and the copies of slab k + STAGES - 2, to the stage of slab k - 2;
//   * the products of slab k - 1 are waited for.
#include "tile.cuh"
#include "wgmma.cuh"

// A stage has rows of DEEP values, 128 bytes. Blocks of a multiprocessor share STAGE_BYTES of stages.
enum { BM = 128, DEEP = 64, STEP = 16, GROUP = 128, STAGE_BYTES = 192 << 10 };

// groups of warps are one below the other; each warp computes 16 rows of the tile.
template <int BN> struct warps {
	enum { THREADS = BM / 64 * GROUP, ROWS = BM, COLUMNS = BN, M = 16, N = BN };
	int lane, row, column;

	INLINE warps() { lane = threadIdx.x % 32, row = threadIdx.x / 32 * M, column = 0; }
};

// multiply begins the products of a slab: 64 rows of A for each group of warps, and all columns of B.
template <int BN> INLINE void multiply(float (&sums)[BN / 8][4], u64 left, u64 right) {
	begin_products();
#pragma unroll
	for (int k = 0; k < DEEP / STEP; k++) multiply_add(sums, further(left, k * STEP * 2), further(right, k * STEP * 2));
	end_products();
}

// run brings slabs in turn and adds up their products. The function fetch(slab, stage) begins to bring a slab, multiply(stage) its products.
template <int STAGES, typename F, typename M> INLINE void run(share s, F fetch, M multiply) {
	enum { AHEAD = STAGES - 2 };
#pragma unroll 1
	for (int k = 0; k < AHEAD; k++) {
		fetch(s.first + k, k);
		end_group();
	}
	for (int k = s.first, stage = 0; k < s.end; k++) {
		wait_groups<AHEAD - 1>();
		show_copies();
		__syncthreads();
		multiply(stage);
		fetch(k + AHEAD, stage < 2 ? stage + AHEAD : stage - 2);
		end_group();
		wait_products<1>();
		stage = stage == STAGES - 1 ? 0 : stage + 1;
	}
	wait_products<0>();
	wait_groups<0>();
}

// wgmma_window computes a tile of Y or DX. A stage has BM rows of windows, then BN columns of weights.
template <int BN, int BLOCKS> INLINE void wgmma_window(const conv_args &a) {
	DYNAMIC_SHARED(char, memory);
	typedef warps<BN> W;
	enum { VECTOR = wide<bf16>::elements, LANES = DEEP / VECTOR, ROWS = W::THREADS / LANES, STAGE = (BM + BN) * DEEP };
	enum { STAGES = STAGE_BYTES / BLOCKS / (2 * STAGE) };
	const geometry g = a.g;
	const view v = view_of(g, blockIdx.z);
	int rows = rows_of(g, v), row0 = blockIdx.x * BM, column0 = blockIdx.y * BN;
	if (row0 >= rows) return;
	share s = share_of(slabs_of(v, DEEP), g.splits, blockIdx.z % g.splits);
	cursor c = cursor_at(v, s.first, DEEP);
	int lane = threadIdx.x % LANES, row = threadIdx.x / LANES;
	pixel at[BM / ROWS];
#pragma unroll
	for (int i = 0; i < BM / ROWS; i++) at[i] = pixel_of(v, row0 + row + i * ROWS, rows, lane * VECTOR);
	const bf16 *image = GLOBAL(const bf16, a.image), *packed = GLOBAL(const bf16, a.other);
	i64 panel = ((i64)v.panel * g.slabs * g.columns + column0 + row) * DEEP + lane * VECTOR;
	char *const begin = swizzled_memory(memory);
	bf16 *const stages = (bf16 *)begin;
	int own = row * DEEP + (lane ^ row % LANES) * VECTOR; // where the swizzle has the thread's vector
	u64 factors = slab_at(begin);
	float sums[1][BN / 8][4] = {};
	run<STAGES>(s, [&](int slab, int stage) {
		bf16 *to = stages + stage * STAGE + own;
		sight seen = sight_of(v, c, lane * VECTOR);
		if (slab >= s.end) seen.e = v.inner;
#pragma unroll
		for (int i = 0; i < BM / ROWS; i++) bring<VECTOR>(to + i * ROWS * DEEP, image, [&](int k) { return seen_at(v, at[i], seen, k); });
		i64 from = slab < s.end ? panel + (i64)slab * g.columns * DEEP : 0;
#pragma unroll
		for (int i = 0; i < BN / ROWS; i++) copy_async(to + (BM + i * ROWS) * DEEP, packed + from + i * ROWS * DEEP, slab >= s.end);
		advance(c, v, DEEP);
	}, [&](int stage) {
		u64 slab = further(factors, stage * STAGE * 2);
		multiply<BN>(sums[0], further(slab, threadIdx.x / GROUP * 64 * DEEP * 2), further(slab, BM * DEEP * 2));
	});
	settle(sums[0]);
	write_window<bf16, W>(a, sums, begin, view_of(g, anew(blockIdx.z), anew(g.backward)));
}

#define PRODUCT(BN, blocks) \
	KERNEL_BOUNDS(wgmma_window_bf16_128x##BN##_v8, struct conv_args, warps<BN>::THREADS, blocks) { wgmma_window<BN, blocks>(a); }

PRODUCT(256, 1)
PRODUCT(128, 2)
PRODUCT(64, 2)
