// Pools. A grid's x counts channels of a row of pixels, y rows, z images. Gradients are gathered: each input element
// visits the windows that contain it, in ascending order, so that no two threads write the same byte.
#include "plimsoll.cuh"

// place is a thread's element: image n, row y, pixel x, channel c.
struct place {
	int x, c;
	bool inside;
};

INLINE place place_of(int width, int channels) {
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	return place{i / channels, i % channels, i < width * channels};
}

#define EACH_IMAGE_ROW(image, row, images, rows) \
	for (int image = blockIdx.z; image < (images); image += gridDim.z) \
		for (int row = blockIdx.y; row < (rows); row += gridDim.y)

INLINE int most(int a, int b) { return a > b ? a : b; }
INLINE int least(int a, int b) { return a < b ? a : b; }

// maxpool_forward: the first maximum of the window; a NaN counts as larger than anything.
template <typename T> INLINE void maxpool_forward(const pool_args &a) {
	place p = place_of(a.ow, a.c);
	if (!p.inside) return;
	EACH_IMAGE_ROW(n, oy, a.n, a.oh) {
		const T *from = GLOBAL(const T, a.x) + (i64)n * a.h * a.w * a.c + p.c;
		int y0 = oy * a.sh - a.ph, x0 = p.x * a.sw - a.pw;
		float best = 0;
		int at = -1;
		for (int y = most(y0, 0); y < least(y0 + a.kh, a.h); y++)
			for (int x = most(x0, 0); x < least(x0 + a.kw, a.w); x++) {
				float v = to_float(from[((i64)y * a.w + x) * a.c]);
				if (at < 0 || v > best || v != v) best = v, at = y * a.w + x;
			}
		i64 out = (((i64)n * a.oh + oy) * a.ow + p.x) * a.c + p.c;
		put(GLOBAL(T, a.y) + out, best);
		if (a.index) GLOBAL(int, a.index)[out] = at;
	}
}
INSTANCES(maxpool_forward, pool_args)

// span is the windows that contain a position along an axis.
struct span {
	int first, end;
};

INLINE span windows(int position, int pad, int stride, int kernel, int count) {
	int reach = position + pad;
	int first = reach < kernel ? 0 : (reach - kernel) / stride + 1;
	return span{first, least(reach / stride + 1, count)};
}

// reaches is how many positions the mean of window o along an axis is of: see kernels.AvgPool.
INLINE int reaches(int o, int kernel, int stride, int pad, int size, int inside) {
	int from = o * stride - pad, past = least(from + kernel, size + pad);
	return inside ? least(past, size) - most(from, 0) : past - from;
}

// share_of is the share of a pixel in the mean of its window.
INLINE float share_of(const pool_args &a, int oy, int ox) {
	if (!a.uneven) return a.share;
	return 1 / ((float)reaches(oy, a.kh, a.sh, a.ph, a.h, a.inside) * (float)reaches(ox, a.kw, a.sw, a.pw, a.w, a.inside));
}

// gather: dx (+)= the sum of what pick gives for each window that contains the element.
template <typename T, typename F> INLINE void gather(const pool_args &a, F pick) {
	place p = place_of(a.w, a.c);
	if (!p.inside) return;
	span wx = windows(p.x, a.pw, a.sw, a.kw, a.ow);
	EACH_IMAGE_ROW(n, y, a.n, a.h) {
		span wy = windows(y, a.ph, a.sh, a.kh, a.oh);
		float sum = 0;
		for (int oy = wy.first; oy < wy.end; oy++)
			for (int ox = wx.first; ox < wx.end; ox++)
				sum += pick((((i64)n * a.oh + oy) * a.ow + ox) * a.c + p.c, y * a.w + p.x);
		values<1> g = {{sum}};
		deposit(GLOBAL(T, a.dx) + (((i64)n * a.h + y) * a.w + p.x) * a.c + p.c, g, 1, a.add);
	}
}

template <typename T> INLINE void maxpool_backward(const pool_args &a) {
	gather<T>(a, [&](i64 out, int position) {
		return GLOBAL(const int, a.index)[out] == position ? to_float(GLOBAL(const T, a.dy)[out]) : 0.0f;
	});
}
INSTANCES(maxpool_backward, pool_args)

template <typename T> INLINE void avgpool_forward(const pool_args &a) {
	place p = place_of(a.ow, a.c);
	if (!p.inside) return;
	EACH_IMAGE_ROW(n, oy, a.n, a.oh) {
		const T *from = GLOBAL(const T, a.x) + (i64)n * a.h * a.w * a.c + p.c;
		int y0 = oy * a.sh - a.ph, x0 = p.x * a.sw - a.pw;
		float sum = 0;
		for (int y = most(y0, 0); y < least(y0 + a.kh, a.h); y++)
			for (int x = most(x0, 0); x < least(x0 + a.kw, a.w); x++)
				sum += to_float(from[((i64)y * a.w + x) * a.c]);
		put(GLOBAL(T, a.y) + (((i64)n * a.oh + oy) * a.ow + p.x) * a.c + p.c, sum * share_of(a, oy, p.x));
	}
}
INSTANCES(avgpool_forward, pool_args)

template <typename T> INLINE void avgpool_backward(const pool_args &a) {
	gather<T>(a, [&](i64 out, int) {
		i64 window = out / a.c;
		return to_float(GLOBAL(const T, a.dy)[out]) * share_of(a, (int)(window / a.ow % a.oh), (int)(window % a.ow));
	});
}
INSTANCES(avgpool_backward, pool_args)

enum { GLOBAL_LANES = 32, GLOBAL_ROWS = 8 };

// globalpool_forward: blocks of 32 channels; 8 rows of threads share the pixels and are summed in order.
template <typename T> INLINE void globalpool_forward(const pool_args &a) {
	__shared__ float sums[GLOBAL_ROWS][GLOBAL_LANES];
	int c = blockIdx.x * GLOBAL_LANES + threadIdx.x;
	i64 area = (i64)a.h * a.w;
	for (int n = blockIdx.y; n < a.n; n += gridDim.y) {
		float sum = 0;
		for (i64 p = threadIdx.y; p < area && c < a.c; p += GLOBAL_ROWS)
			sum += to_float(GLOBAL(const T, a.x)[(n * area + p) * a.c + c]);
		sums[threadIdx.y][threadIdx.x] = sum;
		__syncthreads();
		if (threadIdx.y == 0 && c < a.c) {
			for (int r = 1; r < GLOBAL_ROWS; r++) sum += sums[r][threadIdx.x];
			put(GLOBAL(T, a.y) + (i64)n * a.c + c, sum * a.share);
		}
		__syncthreads();
	}
}
INSTANCES(globalpool_forward, pool_args)

template <typename T> INLINE void globalpool_backward(const pool_args &a) {
	place p = place_of(a.w, a.c);
	if (!p.inside) return;
	EACH_IMAGE_ROW(n, y, a.n, a.h) {
		values<1> g = {{to_float(GLOBAL(const T, a.dy)[(i64)n * a.c + p.c]) * a.share}};
		deposit(GLOBAL(T, a.dx) + (((i64)n * a.h + y) * a.w + p.x) * a.c + p.c, g, 1, a.add);
	}
}
INSTANCES(globalpool_backward, pool_args)

// cut is where window i lies when an axis of size positions is cut into count windows. The other way around it is the
// windows that contain a position: cut(i, count, size).
INLINE span cut(int i, int size, int count) {
	return span{(int)((i64)i * size / count), (int)((((i64)i + 1) * size + count - 1) / count)};
}

// adaptivepool_forward: y is n,c,oh,ow, so a thread's pixel is oy, its channel ox, its row the channel.
template <typename T> INLINE void adaptivepool_forward(const pool_args &a) {
	place p = place_of(a.oh, a.ow);
	if (!p.inside) return;
	span ys = cut(p.x, a.h, a.oh), xs = cut(p.c, a.w, a.ow);
	EACH_IMAGE_ROW(n, c, a.n, a.c) {
		const T *from = GLOBAL(const T, a.x) + (i64)n * a.h * a.w * a.c + c;
		float sum = 0;
		for (int y = ys.first; y < ys.end; y++)
			for (int x = xs.first; x < xs.end; x++)
				sum += to_float(from[((i64)y * a.w + x) * a.c]);
		float area = (float)(ys.end - ys.first) * (xs.end - xs.first);
		put(GLOBAL(T, a.y) + (((i64)n * a.c + c) * a.oh + p.x) * a.ow + p.c, sum / area);
	}
}
INSTANCES(adaptivepool_forward, pool_args)

template <typename T> INLINE void adaptivepool_backward(const pool_args &a) {
	place p = place_of(a.w, a.c);
	if (!p.inside) return;
	span wx = cut(p.x, a.ow, a.w);
	EACH_IMAGE_ROW(n, y, a.n, a.h) {
		span wy = cut(y, a.oh, a.h);
		float sum = 0;
		for (int oy = wy.first; oy < wy.end; oy++)
			for (int ox = wx.first; ox < wx.end; ox++) {
				span ys = cut(oy, a.h, a.oh), xs = cut(ox, a.w, a.ow);
				float area = (float)(ys.end - ys.first) * (xs.end - xs.first);
				sum += to_float(GLOBAL(const T, a.dy)[(((i64)n * a.c + p.c) * a.oh + oy) * a.ow + ox]) / area;
			}
		values<1> g = {{sum}};
		deposit(GLOBAL(T, a.dx) + (((i64)n * a.h + y) * a.w + p.x) * a.c + p.c, g, 1, a.add);
	}
}
INSTANCES(adaptivepool_backward, pool_args)

// upsample_forward: a thread's pixel is one of the output.
template <typename T> INLINE void upsample_forward(const pool_args &a) {
	place p = place_of(a.ow, a.c);
	if (!p.inside) return;
	EACH_IMAGE_ROW(n, oy, a.n, a.oh) {
		i64 from = (((i64)n * a.h + oy / a.kh) * a.w + p.x / a.kw) * a.c + p.c;
		GLOBAL(T, a.y)[(((i64)n * a.oh + oy) * a.ow + p.x) * a.c + p.c] = GLOBAL(const T, a.x)[from];
	}
}
INSTANCES(upsample_forward, pool_args)

// upsample_backward: dx (+)= the sum over the copies of a pixel, row by row.
template <typename T> INLINE void upsample_backward(const pool_args &a) {
	place p = place_of(a.w, a.c);
	if (!p.inside) return;
	EACH_IMAGE_ROW(n, y, a.n, a.h) {
		float sum = 0;
		for (int oy = y * a.kh; oy < (y + 1) * a.kh; oy++)
			for (int ox = p.x * a.kw; ox < (p.x + 1) * a.kw; ox++)
				sum += to_float(GLOBAL(const T, a.dy)[(((i64)n * a.oh + oy) * a.ow + ox) * a.c + p.c]);
		values<1> g = {{sum}};
		deposit(GLOBAL(T, a.dx) + (((i64)n * a.h + y) * a.w + p.x) * a.c + p.c, g, 1, a.add);
	}
}
INSTANCES(upsample_backward, pool_args)

// between is where a position of an axis lies: the pixels low and high, and the weight of the second. See kernels.Axis.At.
struct between {
	int low, high;
	float weight;
};

INLINE between between_of(const frame_axis &a, int i) {
	float at = a.ratio * (float)i;
	if (a.shift != 0) at = fmaxf(__fadd_rn(__fmul_rn(a.ratio, (float)i + a.shift), -a.shift), 0.0f);
	int low = least((int)at, a.in - 1);
	if (a.nearest) return between{low, low, 0};
	return between{low, least(low + 1, a.in - 1), fminf(at - (float)low, 1.0f)};
}

// first_near is a position from which on all are that have a part of pixel p.
INLINE int first_near(const frame_axis &a, int p) {
	if (a.ratio <= 0) return 0;
	float at = (float)(p - 1) / a.ratio - 2;
	return at > 0 ? (int)at : 0;
}

INLINE float part_of(const between &b, int p) { return (b.low == p ? 1 - b.weight : 0) + (b.high == p ? b.weight : 0); }

// resize_forward: a thread's pixel is one of the output.
template <typename T> INLINE void resize_forward(const frame_args &a) {
	place p = place_of(a.columns.out, a.c);
	if (!p.inside) return;
	between across = between_of(a.columns, p.x);
	EACH_IMAGE_ROW(n, oy, a.n, a.rows.out) {
		between down = between_of(a.rows, oy);
		const T *x = GLOBAL(const T, a.x) + (i64)n * a.rows.in * a.columns.in * a.c + p.c;
		auto at = [&](int y, int column) { return to_float(x[((i64)y * a.columns.in + column) * a.c]); };
		float above = (1 - down.weight) * (1 - across.weight) * at(down.low, across.low) + (1 - down.weight) * across.weight * at(down.low, across.high);
		float below = down.weight * (1 - across.weight) * at(down.high, across.low) + down.weight * across.weight * at(down.high, across.high);
		put(GLOBAL(T, a.y) + (((i64)n * a.rows.out + oy) * a.columns.out + p.x) * a.c + p.c, above + below);
	}
}
INSTANCES(resize_forward, frame_args)

// resize_backward: dx (+)= the weighted sum over the pixels of the output that have a part of this one, row by row.
template <typename T> INLINE void resize_backward(const frame_args &a) {
	place p = place_of(a.columns.in, a.c);
	if (!p.inside) return;
	int first = first_near(a.columns, p.x);
	EACH_IMAGE_ROW(n, y, a.n, a.rows.in) {
		float sum = 0;
		for (int oy = first_near(a.rows, y); oy < a.rows.out; oy++) {
			between down = between_of(a.rows, oy);
			if (down.low > y) break;
			float weight = part_of(down, y);
			for (int ox = first; weight != 0 && ox < a.columns.out; ox++) {
				between across = between_of(a.columns, ox);
				if (across.low > p.x) break;
				float part = weight * part_of(across, p.x);
				sum += part * to_float(GLOBAL(const T, a.dy)[(((i64)n * a.rows.out + oy) * a.columns.out + ox) * a.c + p.c]);
			}
		}
		values<1> g = {{sum}};
		deposit(GLOBAL(T, a.dx) + (((i64)n * a.rows.in + y) * a.columns.in + p.x) * a.c + p.c, g, 1, a.add);
	}
}
INSTANCES(resize_backward, frame_args)

// inside is where an extent has position i; -1: nowhere.
INLINE int inside(int i, int extent, int circular) {
	bool there = i >= 0 && i < extent;
	if (!circular || there) return there ? i : -1;
	int rest = i % extent;
	return rest < 0 ? rest + extent : rest;
}

// pad_forward: a thread's pixel is one of the output.
template <typename T> INLINE void pad_forward(const frame_args &a) {
	place p = place_of(a.columns.out, a.c);
	if (!p.inside) return;
	int x = inside(p.x - a.left, a.columns.in, a.circular);
	EACH_IMAGE_ROW(n, oy, a.n, a.rows.out) {
		int y = inside(oy - a.top, a.rows.in, a.circular);
		float v = 0;
		if (x >= 0 && y >= 0) v = to_float(GLOBAL(const T, a.x)[(((i64)n * a.rows.in + y) * a.columns.in + x) * a.c + p.c]);
		put(GLOBAL(T, a.y) + (((i64)n * a.rows.out + oy) * a.columns.out + p.x) * a.c + p.c, v);
	}
}
INSTANCES(pad_forward, frame_args)

// pad_backward: dx (+)= the sum over the copies of a pixel, row by row.
template <typename T> INLINE void pad_backward(const frame_args &a) {
	place p = place_of(a.columns.in, a.c);
	if (!p.inside) return;
	int row_step = a.circular ? a.rows.in : a.rows.in + a.rows.out, column_step = a.circular ? a.columns.in : a.columns.in + a.columns.out;
	int first = a.circular ? inside(p.x + a.left, a.columns.in, 1) : p.x + a.left;
	EACH_IMAGE_ROW(n, y, a.n, a.rows.in) {
		float sum = 0;
		for (int oy = a.circular ? inside(y + a.top, a.rows.in, 1) : y + a.top; oy >= 0 && oy < a.rows.out; oy += row_step)
			for (int ox = first; ox >= 0 && ox < a.columns.out; ox += column_step)
				sum += to_float(GLOBAL(const T, a.dy)[(((i64)n * a.rows.out + oy) * a.columns.out + ox) * a.c + p.c]);
		values<1> g = {{sum}};
		deposit(GLOBAL(T, a.dx) + (((i64)n * a.rows.in + y) * a.columns.in + p.x) * a.c + p.c, g, 1, a.add);
	}
}
INSTANCES(pad_backward, frame_args)
