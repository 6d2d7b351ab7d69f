// Convolutions without tensor cores: 256 threads make a tile of the product in registers, from two slabs in shared memory
// that are filled in turn. Sums run in float32, in an order that the shape and the tile decide.
#include "conv.cuh"

enum { CONV_THREADS = 256, SLAB = 8, SIDE = 16 }; // SIDE x SIDE threads

// panels are two slabs of both factors, by inner index first.
template <int BM, int BN> struct panels {
	float a[2][SLAB][BM + 4], b[2][SLAB][BN + 4];
};

template <int N> INLINE void read_fragment(float *to, const float *from, int lane) {
#pragma unroll
	for (int i = 0; i < N; i += 4) {
		float4 f = *(const float4 *)(from + i * SIDE + lane * 4);
		to[i] = f.x, to[i + 1] = f.y, to[i + 2] = f.z, to[i + 3] = f.w;
	}
}

// place_of returns the index within a tile of fragment element i of a lane.
INLINE int place_of(int lane, int i) { return i / 4 * (4 * SIDE) + lane * 4 + i % 4; }

// multiply adds the product of one slab.
template <int BM, int BN>
INLINE void multiply(float (&acc)[BM / SIDE][BN / SIDE], const float (*a)[BM + 4], const float (*b)[BN + 4]) {
	int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;
#pragma unroll
	for (int k = 0; k < SLAB; k++) {
		float x[BM / SIDE], y[BN / SIDE];
		read_fragment<BM / SIDE>(x, a[k], ty);
		read_fragment<BN / SIDE>(y, b[k], tx);
#pragma unroll
		for (int i = 0; i < BM / SIDE; i++)
#pragma unroll
			for (int j = 0; j < BN / SIDE; j++) acc[i][j] = __fmaf_rn(x[i], y[j], acc[i][j]);
	}
}

template <int V> INLINE void clear(values<V> &x) {
#pragma unroll
	for (int i = 0; i < V; i++) x.v[i] = 0;
}

// window_rows brings rows of windows: a thread has V channels of PASSES rows.
template <typename T, int BM, int V> struct window_rows {
	enum { LANES = SLAB / V, STEP = CONV_THREADS / LANES, PASSES = BM > STEP ? BM / STEP : 1 };
	const T *image;
	pixel at[PASSES];
	values<V> held[PASSES] = {};
	int lane, row;

	INLINE window_rows(const view &v, u64 from, int first, int rows) {
		image = GLOBAL(const T, from);
		lane = threadIdx.x % LANES * V;
		row = threadIdx.x / LANES;
#pragma unroll
		for (int i = 0; i < PASSES; i++) at[i] = pixel_of(v, first + row + i * STEP, rows, lane);
	}
	INLINE void fetch(const view &v, const cursor &c) {
		sight s = sight_of(v, c, lane);
#pragma unroll
		for (int i = 0; i < PASSES; i++) {
			place p = seen_at(v, at[i], s, 0);
			if (row < BM && p.inside) load_fixed(held[i], image + p.at);
			else clear(held[i]);
		}
	}
	INLINE void keep(float (*to)[BM + 4]) const {
#pragma unroll
		for (int i = 0; i < PASSES; i++)
#pragma unroll
			for (int k = 0; k < V; k++)
				if (row < BM) to[lane + k][row + i * STEP] = held[i].v[k];
	}
};

// packed_columns brings packed weights.
template <int BN> struct packed_columns {
	const float *packed;
	i64 at;
	values<4> held = {};
	int k, lane;

	INLINE packed_columns(u64 address, i64 slab, int columns, int first) {
		k = threadIdx.x / (BN / 4), lane = threadIdx.x % (BN / 4) * 4;
		packed = GLOBAL(const float, address);
		at = (slab * SLAB + k) * columns + first + lane;
	}
	INLINE void fetch(int columns) {
		if (k < SLAB) load_fixed(held, packed + at);
		at += (i64)SLAB * columns;
	}
	INLINE void keep(float (*to)[BN + 4]) const {
		if (k < SLAB) *(float4 *)&to[k][lane] = make_float4(held.v[0], held.v[1], held.v[2], held.v[3]);
	}
};

// write_tile writes what a thread has of a tile; at gives the offset of a row's column 0 in the result.
template <typename T, int BM, int BN, typename F>
INLINE void write_tile(const conv_args &a, const float (&acc)[BM / SIDE][BN / SIDE], int row0, int rows, int column0, int columns, int group, F at) {
	int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;
	bool aligned = columns % 4 == 0;
#pragma unroll
	for (int i = 0; i < BM / SIDE; i++) {
		int row = row0 + place_of(ty, i);
		if (row >= rows) continue;
		i64 offset = at(row);
#pragma unroll
		for (int j = 0; j < BN / SIDE; j += 4) {
			int c = column0 + place_of(tx, j);
			values<4> x = {{acc[i][j], acc[i][j + 1], acc[i][j + 2], acc[i][j + 3]}};
			if (c < columns) write_row<T>(a, offset + c, x, columns - c, group * columns + c, aligned);
		}
	}
}

// window_product computes a tile of Y or DX.
template <typename T, int BM, int BN, int V> INLINE void window_product(const conv_args &a) {
	__shared__ __align__(16) panels<BM, BN> p;
	const geometry g = a.g;
	const view v = view_of(g, blockIdx.z);
	int rows = rows_of(g, v), row0 = blockIdx.x * BM, column0 = blockIdx.y * BN;
	if (row0 >= rows) return;
	share s = share_of(slabs_of(v, SLAB), g.splits, blockIdx.z % g.splits);
	cursor c = cursor_at(v, s.first, SLAB);
	window_rows<T, BM, V> left(v, a.image, row0, rows);
	packed_columns<BN> right(a.other, (i64)v.panel * g.slabs + s.first, g.columns, column0);
	float acc[BM / SIDE][BN / SIDE] = {};
	for (int k = s.first, now = 0; k <= s.end; k++, now ^= 1) {
		if (k < s.end) {
			left.fetch(v, c);
			right.fetch(g.columns);
			advance(c, v, SLAB);
		}
		if (k > s.first) multiply<BM, BN>(acc, p.a[now ^ 1], p.b[now ^ 1]);
		if (k < s.end) {
			left.keep(p.a[now]);
			right.keep(p.b[now]);
		}
		__syncthreads();
	}
	i64 base = (i64)v.group * v.columns;
	if (g.splits == 1) {
		write_tile<typename stored<T>::type, BM, BN>(a, acc, row0, rows, column0, v.columns, v.group, [&](int row) { return base + result_at(v, g, row); });
		return;
	}
	base += (i64)(blockIdx.z % g.splits) * rows * v.channels;
	write_tile<float, BM, BN>(a, acc, row0, rows, column0, v.columns, v.group, [&](int row) { return base + (i64)row * v.channels; });
}

// pixel_rows brings V neighbouring values of pixels: at(i) gives the place for pass i.
template <typename T, int WIDTH, int V> struct pixel_rows {
	enum { LANES = WIDTH / V, STEP = CONV_THREADS / LANES, PASSES = SLAB > STEP ? SLAB / STEP : 1 };
	const T *from;
	values<V> held[PASSES] = {};
	int lane, row;

	INLINE pixel_rows(u64 address) {
		from = GLOBAL(const T, address);
		lane = threadIdx.x % LANES * V, row = threadIdx.x / LANES;
	}
	template <typename F> INLINE void fetch(F at) {
#pragma unroll
		for (int i = 0; i < PASSES; i++) {
			place p = at(i);
			if (row < SLAB && p.inside) load_fixed(held[i], from + p.at);
			else clear(held[i]);
		}
	}
	INLINE void keep(float (*to)[WIDTH + 4]) const {
#pragma unroll
		for (int i = 0; i < PASSES; i++)
#pragma unroll
			for (int k = 0; k < V; k++)
				if (row < SLAB) to[row + i * STEP][lane + k] = held[i].v[k];
	}
};

// pixel_product computes a tile of the weight's gradient, or a part of it.
template <typename T, int BM, int BN, int V> INLINE void pixel_product(const conv_args &a) {
	__shared__ __align__(16) panels<BM, BN> p;
	const geometry g = a.g;
	int group = blockIdx.z / g.splits, width = g.o / g.groups, columns = g.kh * g.kw * (g.c / g.groups);
	int row0 = blockIdx.x * BM, column0 = blockIdx.y * BN;
	share s = share_of(g.slabs, g.splits, blockIdx.z % g.splits);
	pixel_rows<T, BM, V> left(a.other);
	pixel_rows<T, BN, V> right(a.image);
	column seen = column_of(g, group, column0 + right.lane);
	walker at[right.PASSES];
#pragma unroll
	for (int i = 0; i < right.PASSES; i++) at[i] = walker_at(g, s.first * SLAB + right.row + i * right.STEP);
	walker by = walker_at(g, SLAB);
	int o = row0 + left.lane;
	float acc[BM / SIDE][BN / SIDE] = {};
	for (int k = s.first, now = 0; k <= s.end; k++, now ^= 1) {
		if (k < s.end) {
			left.fetch([&](int i) {
				int pixel = k * SLAB + left.row + i * left.STEP;
				return place{(i64)pixel * g.o + group * width + o, o < width && pixel < g.rows};
			});
			right.fetch([&](int i) {
				place p = input_at(g, at[i], seen, k * SLAB + right.row + i * right.STEP < g.rows);
				advance(at[i], g, by);
				return p;
			});
		}
		if (k > s.first) multiply<BM, BN>(acc, p.a[now ^ 1], p.b[now ^ 1]);
		if (k < s.end) {
			left.keep(p.a[now]);
			right.keep(p.b[now]);
		}
		__syncthreads();
	}
	i64 base = ((i64)(blockIdx.z % g.splits) * g.o + group * width) * columns;
	write_tile<float, BM, BN>(a, acc, row0, width, column0, columns, 0, [&](int row) { return base + (i64)row * columns; });
}

#define PRODUCT(type, T, BM, BN, V, blocks) \
	KERNEL_BOUNDS(window_##type##_##BM##x##BN##_v##V, struct conv_args, CONV_THREADS, blocks) { window_product<T, BM, BN, V>(a); } \
	KERNEL_BOUNDS(pixel_##type##_##BM##x##BN##_v##V, struct conv_args, CONV_THREADS, blocks) { pixel_product<T, BM, BN, V>(a); }

PRODUCT(f32, float, 128, 128, 4, 1)
PRODUCT(f32, float, 128, 128, 1, 1)
PRODUCT(f32, float, 128, 64, 4, 2)
PRODUCT(f32, float, 128, 64, 1, 2)
PRODUCT(f32, float, 64, 64, 4, 2)
PRODUCT(f32, float, 64, 64, 1, 2)
PRODUCT(bf16, bf16, 64, 64, 4, 2)
PRODUCT(bf16, bf16, 64, 64, 1, 2)
PRODUCT(tf32, tf32, 64, 64, 4, 2)
PRODUCT(tf32, tf32, 64, 64, 1, 2)
