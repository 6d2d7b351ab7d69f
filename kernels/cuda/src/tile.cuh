// Products on tensor cores bring slabs to shared memory, and write tiles, by these functions, whichever instruction multiplies.
//
// A type W says which part of a block's tile, ROWS x COLUMNS, each of the warps of THREADS threads computes: M x N from row and column on.
// A warp holds its part as fragments of 16 x 8 (see C in mma.cuh).
#ifndef PLIMSOLL_TILE_CUH
#define PLIMSOLL_TILE_CUH

#include "conv.cuh"
#include "mma.cuh"

enum { PAD = 8 }; // values behind each row of a tile or slab in shared memory, which keep rows in different banks

// row_offsets is room for the offset of each row of a tile in the result.
INLINE i64 *row_offsets() {
	__shared__ i64 offsets[128];
	return offsets;
}

// write_tile writes a block's tile, of which rows and columns are in the result; at gives the offset of a row's column 0 there. The tile goes
// through the memory of the stages, so that neighbouring threads write neighbouring vectors.
template <typename T, typename W, typename F>
INLINE void write_tile(const conv_args &a, const float (&c)[W::M / 16][W::N / 8][4], char *memory, int rows, int columns, int group, F at) {
	enum { BM = W::ROWS, BN = W::COLUMNS, WIDTH = BN + PAD, VECTORS = BN / 4 };
	i64 *const offsets = row_offsets();
	float *tile = (float *)memory;
	int row0 = blockIdx.x * BM, column0 = blockIdx.y * BN;
	W w;
	__syncthreads();
	for (int r = threadIdx.x; r < BM; r += W::THREADS) offsets[r] = row0 + r < rows ? at(row0 + r) : -1;
#pragma unroll
	for (int i = 0; i < W::M / 8; i++)
#pragma unroll
		for (int j = 0; j < W::N / 8; j++) {
			const float *pair = c[i / 2][j] + i % 2 * 2;
			store_pair(tile + (w.row + i * 8 + w.lane / 4) * WIDTH + w.column + j * 8 + w.lane % 4 * 2, pair[0], pair[1]);
		}
	__syncthreads();
#pragma unroll 4
	for (int k = threadIdx.x; k < BM * VECTORS; k += W::THREADS) {
		int r = k / VECTORS, within = k % VECTORS * 4, column = column0 + within;
		i64 offset = offsets[r];
		values<4> x;
		load(x, tile + r * WIDTH + within);
		if (offset >= 0 && column < columns) write_row<T>(a, offset + column, x, columns - column, group * columns + column, columns % 4 == 0);
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

// write_window writes a block's tile of a window product, or its part of it.
template <typename E, typename W>
INLINE void write_window(const conv_args &a, const float (&sums)[W::M / 16][W::N / 8][4], char *memory, const view &v) {
	int rows = rows_of(a.g, v);
	i64 base = (i64)v.group * v.columns, part = (i64)(blockIdx.z % a.g.splits) * rows * v.channels;
	if (a.g.splits == 1)
		write_tile<typename stored<E>::type, W>(a, sums, memory, rows, v.columns, v.group, [&](int r) { return base + result_at(v, a.g, r); });
	else write_tile<float, W>(a, sums, memory, rows, v.columns, v.group, [&](int r) { return base + part + (i64)r * v.channels; });
}

#endif
