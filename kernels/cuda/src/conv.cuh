// The geometry of convolutions as implicit matrix products. Nothing stores an im2col matrix: products read images through
// windows.
//
// A window product computes Y (forward) or DX (backward): rows are pixels of the result, columns its channels, and the
// inner dimension runs over taps and the channels of each tap. The input's gradient at stride s falls into s*s classes of
// positions modulo the strides; each is a product of its own with the taps that reach it. The inner dimension is cut into
// slabs that never cross a tap: each tap's channels are rounded up to whole slabs, the rest is zero.
//
// A pixel product computes the weight's gradient: rows are output channels, columns taps and input channels, and the
// inner dimension runs over the output's pixels.
//
// A folded convolution (fold.go) computes another one over an image whose pixels are whole vectors: a pixel of it holds the pixels of a
// stride along w, each with channels of zeros behind. Its kernel is as much wider; weights of zeros stand for what the other has not.
//
// grid: x row tiles, y column tiles, z (class*groups + group)*splits + split.
#ifndef PLIMSOLL_CONV_CUH
#define PLIMSOLL_CONV_CUH

#include "plimsoll.cuh"

enum { CONV_THREADS = 256 };

// axis of a window product: the result's positions g < extent look at g*mul + off + t*step for tap t < taps, which must be
// within limit; the weight's tap is first + t*stride, and the result lies at g*spread + rest.
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
	int height, width, pixel; // of the image that windows look at; pixel is its channels
	int group, columns;       // columns of the group in the result
	int channels;             // of the result's pixels
	int joined, inner, padded;
	int panel; // class*groups + group: which packed weights
};

INLINE view view_of(const geometry &g, int z) {
	view v;
	v.panel = z / g.splits;
	v.group = v.panel % g.groups;
	v.joined = g.joined, v.inner = g.inner, v.padded = g.padded;
	if (!g.backward) {
		v.h = forward_axis(g.h, g.oh, g.kh, g.sh, g.ph, g.dh);
		v.w = forward_axis(g.w, g.ow, g.kw, g.sw, g.pw, g.dw);
		v.height = g.h, v.width = g.w, v.pixel = g.c, v.channels = g.o;
	} else {
		int rest = v.panel / g.groups;
		v.h = backward_axis(g.h, g.oh, g.kh, g.sh, g.ph, g.dh, rest / g.sw);
		v.w = backward_axis(g.w, g.ow, g.kw, g.sw, g.pw, g.dw, rest % g.sw);
		v.height = g.oh, v.width = g.ow, v.pixel = g.o, v.channels = g.c;
	}
	v.columns = v.channels / g.groups;
	return v;
}

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
	c.e += depth;
	if (c.e < v.padded) return;
	c.e = 0;
	if (++c.w < taps_along_w(v)) return;
	c.w = 0;
	c.h++;
}

// pixel of a product's row: where its window begins.
struct pixel {
	i64 image; // offset of its image
	int y, x;  // of tap 0; x counts elements of the image's row
};

INLINE pixel pixel_of(const view &v, int row, int rows) {
	bool outside = row >= rows; // then no tap of it is within the image
	int x = row % v.w.extent, y = row / v.w.extent % v.h.extent, n = row / v.w.extent / v.h.extent;
	int top = outside ? -(1 << 30) : y * v.h.mul + v.h.off;
	return pixel{(i64)n * v.height * v.width * v.pixel, top, (x * v.w.mul + v.w.off) * v.pixel};
}

// seen_at returns the offset of what a pixel's window shows at the cursor's tap and channel e of the group, or -1.
INLINE i64 seen_at(const view &v, const pixel &p, const cursor &c, int e) {
	int y = p.y + c.h * v.h.step, row = v.width * v.pixel;
	int x = p.x + c.w * v.w.step * v.pixel + v.group * (v.joined ? 0 : v.inner) + e;
	bool seen = e < v.inner && y >= 0 && y < v.height && x >= 0 && x < row;
	return seen ? p.image + (i64)y * row + x : -1;
}

// result_at returns the offset of a row's pixel in the result.
INLINE i64 result_at(const view &v, const geometry &g, int row) {
	if (!g.backward) return (i64)row * v.channels;
	int x = row % v.w.extent, y = row / v.w.extent % v.h.extent, n = row / v.w.extent / v.h.extent;
	return (((i64)n * g.h + y * v.h.spread + v.h.rest) * g.w + x * v.w.spread + v.w.rest) * v.channels;
}

// column of a pixel product: a tap and a channel.
struct column {
	int y, x; // what the tap adds to a pixel's row and, in elements, to its place in the row
	bool inside;
};

INLINE column column_of(const geometry &g, int group, int n) {
	int depth = g.c / g.groups, e = n % depth, tw = n / depth % g.kw, th = n / depth / g.kw;
	return column{th * g.dh - g.ph, (tw * g.dw - g.pw) * g.c + group * depth + e, th < g.kh};
}

// walker walks output pixels.
struct walker {
	i64 image; // offset of the input's image
	int y, x;
	int left; // pixels to the end
};

INLINE walker walker_at(const geometry &g, int p) {
	int x = p % g.ow, y = p / g.ow % g.oh, n = p / g.ow / g.oh;
	return walker{(i64)n * g.h * g.w * g.c, y, x, g.rows - p};
}

INLINE void advance(walker &p, const geometry &g, int by) {
	p.left -= by;
	p.x += by;
	while (p.x >= g.ow) {
		p.x -= g.ow;
		if (++p.y == g.oh) p.y = 0, p.image += (i64)g.h * g.w * g.c;
	}
}

// input_at returns the offset of what a column sees at a pixel, or -1.
INLINE i64 input_at(const geometry &g, const walker &p, const column &c) {
	int y = p.y * g.sh + c.y, x = p.x * g.sw * g.c + c.x;
	bool seen = p.left > 0 && c.inside && y >= 0 && y < g.h && x >= 0 && x < g.w * g.c;
	return seen ? p.image + (i64)y * g.w * g.c + x : -1;
}

// unfolded_at returns where the row of a kernel has the weight that a folded row has at an offset, or -1.
INLINE int unfolded_at(const fold &f, int at) {
	int tap = at / f.pixel, channel = at % f.pixel;
	return tap < f.taps && channel < f.channels ? tap * f.channels + channel : -1;
}

#endif
