// Kernels of self-attention on tensor cores share the layout of their factors, which are bf16 or tf32. Rows of a head's channels are
// in shared memory, fragments of them in registers (see mma.cuh).
#ifndef PLIMSOLL_FLASH_CUH
#define PLIMSOLL_FLASH_CUH

#include "mma.cuh"
#include "terms.cuh"

enum { FLASH_WARPS = 4, FLASH_THREADS = FLASH_WARPS * 32 };

#define INFINITE __uint_as_float(0x7f800000u)
#define LOG2_E 1.44269504f

// rows_of D channels lie WIDTH apart in shared memory: 16 bytes behind each keep rows in different banks. An mma adds up INNER products.
template <typename E, int D> struct rows_of {
	enum { PIECE = wide<E>::elements, WIDTH = D + PIECE, INNER = 2 * PIECE };
};

// each_piece calls f for the pieces of 16 bytes of ROWS rows that a thread copies.
template <typename E, int D, int ROWS, typename F> INLINE void each_piece(F f) {
	enum { PIECE = rows_of<E, D>::PIECE, PIECES = D / PIECE, LANES = PIECES <= 4 ? 4 : PIECES <= 8 ? 8 : PIECES <= 16 ? 16 : 32 };
	const int k = threadIdx.x % LANES * PIECE;
	if (k >= D) return;
#pragma unroll 1
	for (int row = threadIdx.x / LANES; row < ROWS; row += FLASH_THREADS / LANES) f(row, k);
}

// bring_rows begins to copy ROWS rows of x, from an offset on, step apart. Zeros are in place of rows from count on, and of channels from
// dim on.
template <typename E, int D, int ROWS> INLINE void bring_rows(E *to, const E *x, i64 first, i64 step, int count, int dim) {
	each_piece<E, D, ROWS>([&](int row, int k) {
		bool zero = row >= count || k >= dim;
		copy_async(to + row * rows_of<E, D>::WIDTH + k, x + (zero ? 0 : first + row * step + k), zero);
	});
}

// round_rows rounds the pieces that a thread has copied itself: once, and not in each warp that reads them.
template <int D, int ROWS> INLINE void round_rows(bf16 *) {}
template <int D, int ROWS> INLINE void round_rows(tf32 *rows) {
	each_piece<tf32, D, ROWS>([&](int row, int k) {
		uint4 *piece = (uint4 *)(rows + row * rows_of<tf32, D>::WIDTH + k), u = *piece;
		*piece = make_uint4(rounded_bits(u.x), rounded_bits(u.y), rounded_bits(u.z), rounded_bits(u.w));
	});
}

// left_at and right_at are where a lane's rows begin for load_matrices: of A, or of two B side by side, rows of which are columns.
template <typename E, int D> INLINE int left_at(int lane) { return lane % 16 * rows_of<E, D>::WIDTH + lane / 16 * rows_of<E, D>::PIECE; }
template <typename E, int D> INLINE int right_at(int lane) {
	return (lane / 16 * 8 + lane % 8) * rows_of<E, D>::WIDTH + lane / 8 % 2 * rows_of<E, D>::PIECE;
}

// load_left is A of INNER channels from k on: of the 16 rows of x from an offset on, step apart, count of them inside.
template <typename E> INLINE fragment<E> load_left(const E *x, i64 first, i64 step, int count, int k, int dim, int lane) {
	enum { WORD = 4 / sizeof(E) };
	fragment<E> f;
#pragma unroll
	for (int i = 0; i < 4; i++) {
		int row = lane / 4 + i % 2 * 8, channel = k + (lane % 4 + i / 2 * 4) * WORD;
		f.r[i] = row < count && channel < dim ? *(const unsigned *)(x + first + row * step + channel) : 0;
	}
	return round_factors(f);
}

// factors_of makes A of sums: of two blocks of 8 columns in bf16, of one in tf32, whose columns 2t and 2t+1 become inner t and t+4.
INLINE void factors_of(fragment<bf16> &f, const float (*sums)[4]) {
#pragma unroll
	for (int i = 0; i < 4; i++) f.r[i] = rounded_pair(sums[i / 2][i % 2 * 2], sums[i / 2][i % 2 * 2 + 1]);
}
INLINE void factors_of(fragment<tf32> &f, const float (*sums)[4]) {
#pragma unroll
	for (int i = 0; i < 4; i++) f.r[i] = rounded_bits(__float_as_uint(sums[0][i % 2 * 2 + i / 2]));
}

// each_right calls f for the D/8 blocks of columns of INNER rows, with their B. In tf32, inner t and t+4 are rows 2t and 2t+1, as
// factors_of has them. There the columns of four blocks alternate, so that a lane reads 16 bytes of a row: see column_of.
template <int D, typename F> INLINE void each_right(const bf16 *rows, int lane, F f) {
#pragma unroll
	for (int n = 0; n < D / 8; n += 2) {
		fragment<bf16> b = right_across(rows + n * 8, rows_of<bf16, D>::WIDTH, lane);
		f(n, b.r[0], b.r[1]);
		f(n + 1, b.r[2], b.r[3]);
	}
}
template <int D, typename F> INLINE void each_right(const tf32 *rows, int lane, F f) {
	const tf32 *even = rows + lane % 4 * 2 * rows_of<tf32, D>::WIDTH + lane / 4 * 4;
#pragma unroll
	for (int n = 0; n < D / 8; n += 4) {
		uint4 x = *(const uint4 *)(even + n * 8), y = *(const uint4 *)(even + rows_of<tf32, D>::WIDTH + n * 8);
		f(n, x.x, y.x);
		f(n + 1, x.y, y.y);
		f(n + 2, x.z, y.z);
		f(n + 3, x.w, y.w);
	}
}

// column_of is the channel of a lane's sums c and c + 2 of block n of each_right; c is 0 or 1.
template <typename E> INLINE int column_of(int n, int c, int lane);
template <> INLINE int column_of<bf16>(int n, int c, int lane) { return n * 8 + lane % 4 * 2 + c; }
template <> INLINE int column_of<tf32>(int n, int c, int lane) { return n / 4 * 32 + lane % 4 * 8 + c * 4 + n % 4; }

// put_row writes the sums of one of a lane's two rows, times a factor, to a row of dim channels, or adds them to it.
template <int D> INLINE void put_row(bf16 *to, const float (&sums)[D / 8][4], int row, float factor, int dim, int add, int lane) {
#pragma unroll
	for (int n = 0; n < D / 8; n++) {
		int column = column_of<bf16>(n, 0, lane);
		if (column >= dim) continue;
		float x = sums[n][row * 2] * factor, y = sums[n][row * 2 + 1] * factor;
		if (add) {
			unsigned old = *(const unsigned *)(to + column);
			x += low_half(old), y += high_half(old);
		}
		store_pair(to + column, x, y);
	}
}
template <int D> INLINE void put_row(float *to, const float (&sums)[D / 8][4], int row, float factor, int dim, int add, int lane) {
#pragma unroll
	for (int n = 0; n < D / 8; n += 4)
#pragma unroll
		for (int c = 0; c < 2; c++) {
			int column = column_of<tf32>(n, c, lane);
			if (column >= dim) continue;
			values<4> v;
#pragma unroll
			for (int i = 0; i < 4; i++) v.v[i] = sums[n + i][row * 2 + c] * factor;
			deposit(to + column, v, 4, add);
		}
}

#endif
