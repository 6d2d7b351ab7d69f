// Terms of kernels.Attention are added to scaled scores: a learned one by head, and a constant one.
#ifndef PLIMSOLL_TERMS_CUH
#define PLIMSOLL_TERMS_CUH

#include "plimsoll.cuh"

// row_of returns the row of the table that an index means: the nearest row where there is none.
INLINE i64 row_of(float index, int rows) { return index > 0 ? (i64)fminf(index, (float)(rows - 1)) : 0; }

// score_terms are the terms of a head of a sample. Where there are any, there are fewer than 2^31 pairs of a query and a key.
struct score_terms {
	const float *table, *index, *mask; // 0: none. Of the table the head's column, of the masks the head's
	int rows, heads, length;

	INLINE score_terms(const attention_args &a, int map, int head) : table(0), index(0), mask(0), rows(a.table), heads(a.heads), length(a.length) {
		if (a.bias) table = GLOBAL(const float, a.bias) + head, index = GLOBAL(const float, a.index);
		if (a.mask) mask = GLOBAL(const float, a.mask) + (a.mask_heads ? (i64)map * a.heads + head : map) * a.length * a.length;
	}

	// map_of returns which masks a sample has.
	static INLINE int map_of(const attention_args &a, i64 n) { return a.mask ? (int)(n % a.masks) : 0; }

	// at returns where the terms of a query and a key are; positions behind the length have those of the last one.
	INLINE int at(int query, int key) const { return min(query, length - 1) * length + min(key, length - 1); }

	INLINE float learned(int at) const { return table[row_of(index[at], rows) * heads]; }

	// value returns the sum of the terms.
	INLINE float value(int query, int key) const { return (table ? learned(at(query, key)) : 0) + (mask ? mask[at(query, key)] : 0); }

	// add scales a lane's part of a tile of scores, and adds the terms: where(j, k) is the place of v[j][k].
	template <int N, typename F> INLINE void add(float (&v)[N][4], float scale, F where) const {
#pragma unroll
		for (int j = 0; j < N; j++) {
#pragma unroll
			for (int k = 0; k < 4; k++) v[j][k] *= scale;
			if (table)
#pragma unroll
				for (int k = 0; k < 4; k++) v[j][k] += learned(where(j, k));
			if (mask)
#pragma unroll
				for (int k = 0; k < 4; k++) v[j][k] += mask[where(j, k)];
		}
	}
};

#endif
