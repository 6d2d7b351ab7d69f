// These kernels run before and behind products: they pack weights into panels and add up partial results.
#include "conv.cuh"

// weight_at returns the offset of the weight for inner index e at the cursor's tap and a column of a view, or -1.
INLINE i64 weight_at(const geometry &g, const fold &f, const view &v, const cursor &c, int e, int column) {
	if (e >= v.inner || column >= v.columns) return -1;
	int width = g.o / g.groups, depth = g.c / g.groups, within = g.backward ? width : depth;
	int tap = v.joined ? e / within : c.w;
	int channel = v.joined ? e % within : e;
	int o = v.group * width + (g.backward ? channel : column), i = g.backward ? column : channel;
	int th = v.h.first + c.h * v.h.stride, tw = v.w.first + tap * v.w.stride;
	i64 row = (i64)o * g.kh + th;
	if (f.pixel == 0) return (row * g.kw + tw) * depth + i;
	int at = unfolded_at(f, tw * depth + i);
	return at < 0 ? -1 : row * f.taps * f.channels + at;
}

// pack: by panel and slab. Within a slab, f32 is packed by inner index, then column, and values for tensor cores by column, then inner
// index.
// Grid: x elements of a slab, y slabs, z panels.
template <typename T, bool INNER_FIRST> INLINE void pack(const pack_args &a) {
	const geometry &g = a.g;
	view v = view_of(g, blockIdx.z * g.splits);
	int at = blockIdx.x * blockDim.x + threadIdx.x;
	if (at >= a.depth * g.columns) return;
	int slabs = slabs_of(v, a.depth);
	for (int slab = blockIdx.y; slab < slabs; slab += gridDim.y) {
		cursor c = cursor_at(v, slab, a.depth);
		int e = INNER_FIRST ? at / g.columns : at % a.depth, column = INNER_FIRST ? at % g.columns : at / a.depth;
		i64 from = weight_at(g, a.fold, v, c, c.e + e, column);
		T *to = GLOBAL(T, a.packed) + ((i64)v.panel * g.slabs + slab) * a.depth * g.columns + at;
		float w = from < 0 ? 0 : weight_of(a.weight, from, a.narrow);
		put(to, rounded(w, a.round));
	}
}
KERNEL(pack_f32, struct pack_args) { pack<float, true>(a); }
KERNEL(pack_bf16, struct pack_args) { pack<bf16, false>(a); }
KERNEL(pack_tf32, struct pack_args) { pack<float, false>(a); }

// sum_parts: out (+)= bias + the partial results, in order. A thread has one vector, whose parts are on their way together.
template <typename T> INLINE void sum_parts(const sum_args &a) {
	i64 i = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * 4, left = a.n - i;
	if (left <= 0) return;
	values<4> x, part;
	load_some(x, GLOBAL(const float, a.partial) + i, left);
#pragma unroll 8
	for (int s = 1; s < a.splits; s++) {
		const float *from = GLOBAL(const float, a.partial) + s * a.n + i;
		if (a.n % 4 == 0) load(part, from);
		else for (int k = 0; k < 4; k++) part.v[k] = k < left ? from[k] : 0;
#pragma unroll
		for (int k = 0; k < 4; k++) x.v[k] += part.v[k];
	}
	if (a.bias) {
		int c = a.n <= 0xffffffffll ? (int)((unsigned)i % (unsigned)a.columns) : (int)(i % a.columns);
#pragma unroll
		for (int k = 0; k < 4; k++) {
			if (k < left) x.v[k] += GLOBAL(const float, a.bias)[c];
			if (++c == a.columns) c = 0;
		}
	}
	deposit(GLOBAL(T, a.out) + i, x, left, a.add);
}
INSTANCES(sum_parts, sum_args)

// fold_image: see fold_args. Each vector of the result is written whole.
template <typename T> INLINE void fold_image(const fold_args &a) {
	const int V = wide<T>::elements, BITS = 8 * sizeof(T);
	stream<V>(a.n, [&](i64 i, i64) {
		i64 row = a.n <= 0xffffffffll ? (unsigned)i / (unsigned)a.width : i / a.width;
		int at = (int)(i - row * a.width), x = at / a.pixel - a.pad, c = at % a.pixel;
		const T *from = GLOBAL(const T, a.in) + row * a.w * a.c;
		unsigned words[4] = {};
#pragma unroll
		for (int k = 0; k < V; k++) {
			if (x >= 0 && x < a.w && c < a.c) words[k * BITS / 32] |= (unsigned)from[x * a.c + c].bits << k * BITS % 32;
			if (++c == a.pixel) c = 0, x++;
		}
		*(uint4 *)(GLOBAL(T, a.out) + i) = make_uint4(words[0], words[1], words[2], words[3]);
	});
}
KERNEL(fold_image_f32, struct fold_args) { fold_image<tf32>(a); }
KERNEL(fold_image_bf16, struct fold_args) { fold_image<bf16>(a); }

// unfold_weights: see unfold_args. It drops the gradients of weights that stand for nothing.
KERNEL(unfold_weights, struct unfold_args) {
	i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= a.n) return;
	int kept = a.fold.taps * a.fold.channels, at = (int)(i % kept);
	i64 from = i / kept * a.width + at / a.fold.channels * a.fold.pixel + at % a.fold.channels;
	float sum = GLOBAL(const float, a.partial)[from];
#pragma unroll 8
	for (int part = 1; part < a.splits; part++) sum += GLOBAL(const float, a.partial)[part * a.partial_size + from];
	float *to = GLOBAL(float, a.out) + i;
	*to = a.add ? *to + sum : sum;
}

// edge_column returns which of o columns is edge e of the rows of a class: those before the first 16 aligned bytes, then those
// behind the last; -1: none.
INLINE int edge_column(int o, int row_class, int e) {
	int head = -row_class * o & EDGE_ALIGNMENT - 1, tail = o - head & EDGE_ALIGNMENT - 1;
	return e < head ? e : e < head + tail ? o - tail + e - head : -1;
}

// edges_of: the edges of rows.
KERNEL(edges_of, struct edge_args) {
	stream<1>(a.count * EDGES, [&](i64 i, i64) {
		i64 row = i / EDGES;
		int column = edge_column(a.o, (int)(row % a.classes), (int)(i % EDGES));
		unsigned short v = column < 0 ? (unsigned short)0 : GLOBAL(const bf16, a.rows)[row * a.o + column].bits;
		GLOBAL(bf16, a.edges)[i].bits = v;
	});
}

// edges_to: the edges of rows, back to where they belong.
KERNEL(edges_to, struct edge_args) {
	stream<1>(a.count * EDGES, [&](i64 i, i64) {
		i64 row = i / EDGES;
		int column = edge_column(a.o, (int)(row % a.classes), (int)(i % EDGES));
		if (column >= 0) GLOBAL(bf16, a.rows)[row * a.o + column].bits = GLOBAL(const bf16, a.edges)[i].bits;
	});
}

// edge_weights: out holds, for each class, the EDGES rows of the weights that its edges are multiplied with.
KERNEL(edge_weights, struct edge_args) {
	stream<1>((i64)a.classes * EDGES * a.c, [&](i64 i, i64) {
		i64 e = i / a.c;
		int column = edge_column(a.o, (int)(e / EDGES), (int)(e % EDGES));
		put(GLOBAL(bf16, a.out) + i, column < 0 ? 0 : weight_of(a.weight, (i64)column * a.c + i % a.c, a.narrow));
	});
}

// edge_sums: the weights' gradient += what edges holds for each class, in float32 as edge_weights lays it out. A thread takes one of the
// gradient's first or last rows, which may be edges, and a channel.
KERNEL(edge_sums, struct edge_args) {
	stream<1>((i64)2 * EDGE_ALIGNMENT * a.c, [&](i64 i, i64) {
		int q = (int)(i / a.c), column = q < EDGE_ALIGNMENT ? q : a.o - 2 * EDGE_ALIGNMENT + q;
		float *to = GLOBAL(float, a.out) + (i64)column * a.c + i % a.c;
		float sum = *to;
		for (int k = 0; k < a.classes; k++)
			for (int e = 0; e < EDGES; e++)
				if (edge_column(a.o, k, e) == column) sum += GLOBAL(const float, a.edges)[((i64)k * EDGES + e) * a.c + i % a.c];
		*to = sum;
	});
}

// widen_rows: rows of bf16, with ones behind; c and padded are whole vectors.
KERNEL(widen_rows, struct widen_args) {
	const int V = wide<bf16>::elements;
	stream<V>(a.n, [&](i64 i, i64) {
		unsigned row = (unsigned)i / (unsigned)a.padded, column = (unsigned)i % (unsigned)a.padded;
		uint4 v = make_uint4(0, 0, 0, 0);
		if (column < (unsigned)a.c)
			v = *(const uint4 *)(GLOBAL(const bf16, a.in) + (i64)row * a.c + column);
		else if (column == (unsigned)a.c)
			v.x = 0x3f803f80u, v.y = 0x3f80u; // BIAS_PARTS ones
		*(uint4 *)(GLOBAL(bf16, a.out) + i) = v;
	});
}

// high returns the upper half of a float32, a NaN as one.
INLINE float high(float v) { return v != v ? v : high_half(__float_as_uint(v)); }

// widen_weights: rows rounded to bf16, with the bias behind, in parts whose sum it is.
KERNEL(widen_weights, struct widen_args) {
	stream<4>(a.n, [&](i64 i, i64) {
		i64 row = i / a.padded;
		int column = (int)(i % a.padded);
		values<4> x = {};
		if (column < a.c) {
			if (a.narrow) load(x, GLOBAL(const bf16, a.in) + row * a.c + column);
			else load(x, GLOBAL(const float, a.in) + row * a.c + column);
		} else if (column == a.c) {
			float bias = GLOBAL(const float, a.bias)[row];
			bool finite = (__float_as_uint(bias) & 0x7f800000u) != 0x7f800000u;
			x.v[0] = high(bias);
			x.v[1] = finite ? high(bias - x.v[0]) : 0;
			x.v[2] = finite ? bias - x.v[0] - x.v[1] : 0;
		}
		store(GLOBAL(bf16, a.out) + i, x);
	});
}
