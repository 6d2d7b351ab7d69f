// The geometry of convolutions as implicit matrix products. Nothing stores an im2col matrix: products read images through windows.
//
// A window product computes Y (forward) or DX (backward). Its rows are pixels of the result, its columns channels. Its inner dimension runs
// over taps and the channels of each tap. The input's gradient at stride s falls into s*s classes of positions modulo the strides; each is
// a product of its own with the taps that reach it. The inner dimension is cut into slabs that never cross a tap: each tap's channels are
// rounded up to whole slabs, the rest is zero.
//
// A pixel product computes the weight's gradient: rows are output channels, columns taps and input channels, and the inner dimension runs
// over the output's pixels.
//
// A folded convolution (fold.go) computes another one over an image of pixels that are whole vectors. A pixel of it holds the pixels of a
// stride along w, each with channels of zeros behind. Its kernel is as much wider; weights of zeros fill the places that the other
// kernel does not have.
//
// Grid: x row tiles, y column tiles, z (class*groups + group)*splits + split.
#ifndef PLIMSOLL_CONV_CUH
#define PLIMSOLL_CONV_CUH

#include "plimsoll.cuh"

// axis of a window product. At tap t < taps, the result's position g < extent looks at g*mul + off + t*step, which must be within limit.
// The weight's tap is first + t*stride, and the result lies at g*spread + rest.
struct axis {
	int extent, limit, mul, off, step, taps, first, stride, spread, rest;
};

INLINE axis forward_axis(int in, int out, int kernel, int stride, int pad, int dilation) {
	return axis{out, in, stride, -pad, dilation, kernel, 0, 1, 1, 0};
}

INLINE int divisor(int a, int b) {
	while (b != 0) {
		int rest = a % b;
		a = b;
		b = rest;
	}
	return a;
}

// backward_axis: input position i = g*stride + rest receives from output position o through tap t where
// i + pad = o*stride + t*dilation. Those taps are stride/gcd(stride, dilation) apart; the last comes first, so that
// positions ascend.
INLINE axis backward_axis(int in, int out, int kernel, int stride, int pad, int dilation, int rest) {
	axis x = {(in - rest + stride - 1) / stride, out, 1, 0, 0, 0, 0, 0, stride, rest};
	int apart = stride / divisor(stride, dilation);
	for (int t = 0; t < apart && t < kernel; t++) {
		if ((rest + pad - t * dilation) % stride != 0) continue;
		x.taps = (kernel - t + apart - 1) / apart;
		x.first = t + (x.taps - 1) * apart;
		x.off = (rest + pad - x.first * dilation) / stride;
		x.step = apart * dilation / stride;
		x.stride = -apart;
		break;
	}
	return x;
}

// view is one class and group of a window product.
struct view {
	axis h, w;
	int height, row, pixel;   // of the image that windows look at: rows, elements of one, channels
	int apart;                // elements from tap to tap along w
	int group, columns;       // columns of the group in the result
	int channels;             // of the result's pixels
	int joined, inner, padded;
	bool backward;
	int panel; // class*groups + group: which packed weights
};

INLINE view view_of(const geometry &g, int z, bool backward) {
	view v;
	v.backward = backward;
	v.panel = z / g.splits;
	v.group = v.panel % g.groups;
	v.joined = g.joined, v.inner = g.inner, v.padded = g.padded;
	if (!backward) {
		v.h = forward_axis(g.h, g.oh, g.kh, g.sh, g.ph, g.dh);
		v.w = forward_axis(g.w, g.ow, g.kw, g.sw, g.pw, g.dw);
		v.height = g.h, v.row = g.w * g.c, v.pixel = g.c, v.channels = g.o;
	} else {
		int rest = v.panel / g.groups;
		v.h = backward_axis(g.h, g.oh, g.kh, g.sh, g.ph, g.dh, rest / g.sw);
		v.w = backward_axis(g.w, g.ow, g.kw, g.sw, g.pw, g.dw, rest % g.sw);
		v.height = g.oh, v.row = g.ow * g.o, v.pixel = g.o, v.channels = g.c;
	}
	v.apart = v.w.step * v.pixel;
	v.columns = v.channels / g.groups;
	return v;
}

INLINE view view_of(const geometry &g, int z) { return view_of(g, z, g.backward); }

INLINE int taps_along_w(const view &v) { return v.joined ? (v.w.taps > 0 ? 1 : 0) : v.w.taps; }

INLINE int slabs_of(const view &v, int slab) { return v.h.taps * taps_along_w(v) * (v.padded / slab); }

INLINE int rows_of(const geometry &g, const view &v) { return g.n * v.h.extent * v.w.extent; }

// share of a split: slabs from first to end.
struct share {
	int first, end;
};

INLINE share share_of(int slabs, int splits, int split) {
	return share{(int)((i64)slabs * split / splits), (int)((i64)slabs * (split + 1) / splits)};
}

// cursor walks the slabs of a window product: taps h, w and the first channel e.
struct cursor {
	int h, w, e;
};

INLINE cursor cursor_at(const view &v, int slab, int depth) {
	int per = v.padded / depth, tap = slab / per, tw = taps_along_w(v);
	return tw > 0 ? cursor{tap / tw, tap % tw, slab % per * depth} : cursor{0, 0, 0};
}

INLINE void advance(cursor &c, const view &v, int depth) {
	int e = c.e + depth, tap = c.w + (e >= v.padded);
	c.e = e >= v.padded ? 0 : e;
	c.h += tap >= taps_along_w(v);
	c.w = tap >= taps_along_w(v) ? 0 : tap;
}

// pixel of a product's row: where its window begins, lane channels further.
struct pixel {
	int line; // of all images' rows
	int y, x; // of tap 0, which may be outside; x counts elements of the image's row
};

INLINE pixel pixel_of(const view &v, int row, int rows, int lane) {
	bool outside = row >= rows; // then no tap of it is within the image
	int x = row % v.w.extent, y = row / v.w.extent % v.h.extent, n = row / v.w.extent / v.h.extent;
	int top = outside ? -(1 << 30) : y * v.h.mul + v.h.off, left = (x * v.w.mul + v.w.off) * v.pixel;
	return pixel{n * v.height + top, top, left + v.group * (v.joined ? 0 : v.inner) + lane};
}

// place is an offset of an image; one that is outside holds zeros.
struct place {
	i64 at;
	bool inside;
};

// sight holds the offset that a cursor's tap adds to any window's beginning, and the channel of the group that a lane sees there.
struct sight {
	int y, x, e;
};

INLINE sight sight_of(const view &v, const cursor &c, int lane) { return sight{c.h * v.h.step, c.w * v.apart + c.e, c.e + lane}; }

// seen_at returns the place that a pixel's window shows k channels behind the sight's.
INLINE place seen_at(const view &v, const pixel &p, const sight &s, int k) {
	int x = p.x + s.x + k;
	bool inside = s.e + k < v.inner & (unsigned)(p.y + s.y) < (unsigned)v.height & (unsigned)x < (unsigned)v.row;
	return place{(i64)(p.line + s.y) * v.row + x, inside};
}

// result_at returns the offset of a row's pixel in the result.
INLINE i64 result_at(const view &v, const geometry &g, int row) {
	if (!v.backward) return (i64)row * v.channels;
	int x = row % v.w.extent, y = row / v.w.extent % v.h.extent, n = row / v.w.extent / v.h.extent;
	return (((i64)n * g.h + y * v.h.spread + v.h.rest) * g.w + x * v.w.spread + v.w.rest) * v.channels;
}

// column of a pixel product: a tap and a channel.
struct column {
	int y, x;   // what the tap adds to a pixel's row and, in elements, to its place in the row
	int e, tap; // channel of the group, and the tap, counted along w first
};

enum { NOWHERE = 1 << 30 }; // the row that columns behind the last tap look at

INLINE column column_of(const geometry &g, int group, int n) {
	int depth = g.c / g.groups, e = n % depth, tap = n / depth, tw = tap % g.kw, th = tap / g.kw;
	return column{th < g.kh ? th * g.dh - g.ph : NOWHERE, (tw * g.dw - g.pw) * g.c + group * depth + e, e, tap};
}

// next moves to the column behind.
INLINE void next(column &c, const geometry &g, int group) {
	if (c.e + 1 < g.c / g.groups) c.e++, c.x++;
	else c = column_of(g, group, (c.tap + 1) * (g.c / g.groups));
}

// walker walks output pixels.
struct walker {
	int line; // of all images' rows: the first of the input's image
	int y, x;
};

INLINE walker walker_at(const geometry &g, int p) {
	int x = p % g.ow, y = p / g.ow % g.oh, n = p / g.ow / g.oh;
	return walker{n * g.h, y, x};
}

// advance moves by the pixels that by, the walker at pixel by, is away from the first. One turn is enough along each axis.
INLINE void advance(walker &p, const geometry &g, const walker &by) {
	int x = p.x + by.x, y = p.y + by.y + (x >= g.ow);
	p.x = x >= g.ow ? x - g.ow : x;
	p.y = y >= g.oh ? y - g.oh : y;
	p.line += by.line + (y >= g.oh ? g.h : 0);
}

// input_at returns the place that a column sees at a pixel; one: the pixel is one, and does not lie behind the last.
INLINE place input_at(const geometry &g, const walker &p, const column &c, bool one) {
	int y = p.y * g.sh + c.y, x = p.x * g.sw * g.c + c.x, row = g.w * g.c;
	return place{(i64)(p.line + y) * row + x, (bool)(one & (unsigned)y < (unsigned)g.h & (unsigned)x < (unsigned)row)};
}

// unfolded_at returns where the row of a kernel has the weight that a folded row has at an offset, or -1.
INLINE int unfolded_at(const fold &f, int at) {
	int tap = at / f.pixel, channel = at % f.pixel;
	return tap < f.taps && channel < f.channels ? tap * f.channels + channel : -1;
}

// write_row puts four neighbouring columns of a result's row, n of them inside.
template <typename T> INLINE void write_row(const conv_args &a, i64 at, values<4> x, int n, int column, bool aligned) {
	if (a.bias) {
		for (int k = 0; k < 4; k++)
			if (k < n) x.v[k] += GLOBAL(const float, a.bias)[column + k];
	}
	T *to = GLOBAL(T, a.out) + at;
	if (aligned && n >= 4) return deposit(to, x, 4, a.add);
	for (int k = 0; k < 4; k++)
		if (k < n) put(to + k, a.add ? to_float(to[k]) + x.v[k] : x.v[k]);
}

#endif
