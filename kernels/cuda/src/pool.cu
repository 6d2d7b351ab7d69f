// Pools. A grid's x counts vectors of channels of a row of pixels, y rows, z images. Gradients are gathered: each input element
// visits the windows that contain it, in ascending order, so that no two threads write the same byte.
#include "plimsoll.cuh"

// place is a thread's part of the work: V channels from c on of pixel x of a row.
struct place {
	int x, c;
	bool inside;
};

template <int V> INLINE place place_of(int width, int channels) {
	int i = blockIdx.x * blockDim.x + threadIdx.x, vectors = channels / V;
	return place{i / vectors, i % vectors * V, i < width * vectors};
}

#define EACH_IMAGE_ROW(image, row, images, rows) \
	for (int image = blockIdx.z; image < (images); image += gridDim.z) \
		for (int row = blockIdx.y; row < (rows); row += gridDim.y)

INLINE int most(int a, int b) { return a > b ? a : b; }
INLINE int least(int a, int b) { return a < b ? a : b; }

// pixel_at is the offset of channel c of a pixel of images of h rows of w pixels.
INLINE i64 pixel_at(int n, int y, int x, int c, int h, int w, int channels) { return (((i64)n * h + y) * w + x) * channels + c; }

template <int V> INLINE void add_to(values<V> &sum, const values<V> &x, float factor = 1) {
#pragma unroll
	for (int k = 0; k < V; k++) sum.v[k] += x.v[k] * factor;
}

// positions are where the maxima of V channels lie.
template <int V> struct positions {
	int at[V];
};

INLINE void load(positions<1> &p, const int *from) { p.at[0] = *from; }
INLINE void store(int *to, const positions<1> &p) { *to = p.at[0]; }
template <int V> INLINE void load(positions<V> &p, const int *from) {
#pragma unroll
	for (int k = 0; k < V; k += 4) {
		int4 i = *(const int4 *)(from + k);
		p.at[k] = i.x, p.at[k + 1] = i.y, p.at[k + 2] = i.z, p.at[k + 3] = i.w;
	}
}
template <int V> INLINE void store(int *to, const positions<V> &p) {
#pragma unroll
	for (int k = 0; k < V; k += 4) *(int4 *)(to + k) = make_int4(p.at[k], p.at[k + 1], p.at[k + 2], p.at[k + 3]);
}

// maxpool_forward: the first maximum of the window; a NaN counts as larger than anything.
template <typename T, int V> INLINE void maxpool_forward(const pool_args &a) {
	place p = place_of<V>(a.ow, a.c);
	if (!p.inside) return;
	EACH_IMAGE_ROW(n, oy, a.n, a.oh) {
		int y0 = oy * a.sh - a.ph, x0 = p.x * a.sw - a.pw;
		values<V> best = {};
		positions<V> found;
#pragma unroll
		for (int k = 0; k < V; k++) found.at[k] = -1;
		for (int y = most(y0, 0); y < least(y0 + a.kh, a.h); y++)
			for (int x = most(x0, 0); x < least(x0 + a.kw, a.w); x++) {
				values<V> v;
				load(v, GLOBAL(const T, a.x) + pixel_at(n, y, x, p.c, a.h, a.w, a.c));
#pragma unroll
				for (int k = 0; k < V; k++)
					if (found.at[k] < 0 || v.v[k] > best.v[k] || v.v[k] != v.v[k]) best.v[k] = v.v[k], found.at[k] = y * a.w + x;
			}
		i64 out = pixel_at(n, oy, p.x, p.c, a.oh, a.ow, a.c);
		store(GLOBAL(T, a.y) + out, best);
		if (a.index) store(GLOBAL(int, a.index) + out, found);
	}
}
CHANNEL_INSTANCES(maxpool_forward, pool_args)

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

// gather: dx (+)= the sum of what add_window adds for each window that contains the element: of the window's offset, row and column.
template <typename T, int V, typename F> INLINE void gather(const pool_args &a, F add_window) {
	place p = place_of<V>(a.w, a.c);
	if (!p.inside) return;
	span wx = windows(p.x, a.pw, a.sw, a.kw, a.ow);
	EACH_IMAGE_ROW(n, y, a.n, a.h) {
		span wy = windows(y, a.ph, a.sh, a.kh, a.oh);
		values<V> sum = {};
		for (int oy = wy.first; oy < wy.end; oy++)
			for (int ox = wx.first; ox < wx.end; ox++) add_window(sum, pixel_at(n, oy, ox, p.c, a.oh, a.ow, a.c), oy, ox, y * a.w + p.x);
		deposit(GLOBAL(T, a.dx) + pixel_at(n, y, p.x, p.c, a.h, a.w, a.c), sum, V, a.add);
	}
}

template <typename T, int V> INLINE void maxpool_backward(const pool_args &a) {
	gather<T, V>(a, [&](values<V> &sum, i64 out, int, int, int position) {
		positions<V> found;
		values<V> dy;
		load(found, GLOBAL(const int, a.index) + out);
		load(dy, GLOBAL(const T, a.dy) + out);
#pragma unroll
		for (int k = 0; k < V; k++) sum.v[k] += found.at[k] == position ? dy.v[k] : 0;
	});
}
CHANNEL_INSTANCES(maxpool_backward, pool_args)

template <typename T, int V> INLINE void avgpool_forward(const pool_args &a) {
	place p = place_of<V>(a.ow, a.c);
	if (!p.inside) return;
	EACH_IMAGE_ROW(n, oy, a.n, a.oh) {
		int y0 = oy * a.sh - a.ph, x0 = p.x * a.sw - a.pw;
		values<V> sum = {};
		for (int y = most(y0, 0); y < least(y0 + a.kh, a.h); y++)
			for (int x = most(x0, 0); x < least(x0 + a.kw, a.w); x++) {
				values<V> v;
				load(v, GLOBAL(const T, a.x) + pixel_at(n, y, x, p.c, a.h, a.w, a.c));
				add_to(sum, v);
			}
		float share = share_of(a, oy, p.x);
#pragma unroll
		for (int k = 0; k < V; k++) sum.v[k] *= share;
		store(GLOBAL(T, a.y) + pixel_at(n, oy, p.x, p.c, a.oh, a.ow, a.c), sum);
	}
}
CHANNEL_INSTANCES(avgpool_forward, pool_args)

template <typename T, int V> INLINE void avgpool_backward(const pool_args &a) {
	gather<T, V>(a, [&](values<V> &sum, i64 out, int oy, int ox, int) {
		values<V> dy;
		load(dy, GLOBAL(const T, a.dy) + out);
		add_to(sum, dy, share_of(a, oy, ox));
	});
}
CHANNEL_INSTANCES(avgpool_backward, pool_args)

enum { GLOBAL_LANES = 32, GLOBAL_ROWS = 32 };

// globalpool_forward: blocks of GLOBAL_LANES channels; GLOBAL_ROWS rows of threads share the pixels and are summed in order.
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
KERNEL_BOUNDS(globalpool_forward_f32, struct pool_args, GLOBAL_LANES * GLOBAL_ROWS, 1) { globalpool_forward<float>(a); }
KERNEL_BOUNDS(globalpool_forward_bf16, struct pool_args, GLOBAL_LANES * GLOBAL_ROWS, 1) { globalpool_forward<bf16>(a); }

template <typename T, int V> INLINE void globalpool_backward(const pool_args &a) {
	place p = place_of<V>(a.w, a.c);
	if (!p.inside) return;
	EACH_IMAGE_ROW(n, y, a.n, a.h) {
		values<V> dy, g = {};
		load(dy, GLOBAL(const T, a.dy) + (i64)n * a.c + p.c);
		add_to(g, dy, a.share);
		deposit(GLOBAL(T, a.dx) + pixel_at(n, y, p.x, p.c, a.h, a.w, a.c), g, V, a.add);
	}
}
CHANNEL_INSTANCES(globalpool_backward, pool_args)

// cut is where window i lies when an axis of size positions is cut into count windows. The other way around it is the
// windows that contain a position: cut(i, count, size).
INLINE span cut(int i, int size, int count) {
	return span{(int)((i64)i * size / count), (int)((((i64)i + 1) * size + count - 1) / count)};
}

// adaptivepool_forward: y is n,c,oh,ow, so a thread's pixel is oy, its channel ox, its row the channel.
template <typename T> INLINE void adaptivepool_forward(const pool_args &a) {
	place p = place_of<1>(a.oh, a.ow);
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
	place p = place_of<1>(a.w, a.c);
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
template <typename T, int V> INLINE void upsample_forward(const pool_args &a) {
	place p = place_of<V>(a.ow, a.c);
	if (!p.inside) return;
	EACH_IMAGE_ROW(n, oy, a.n, a.oh) {
		values<V> v;
		load(v, GLOBAL(const T, a.x) + pixel_at(n, oy / a.kh, p.x / a.kw, p.c, a.h, a.w, a.c));
		store(GLOBAL(T, a.y) + pixel_at(n, oy, p.x, p.c, a.oh, a.ow, a.c), v);
	}
}
CHANNEL_INSTANCES(upsample_forward, pool_args)

// upsample_backward: dx (+)= the sum over the copies of a pixel, row by row.
template <typename T, int V> INLINE void upsample_backward(const pool_args &a) {
	place p = place_of<V>(a.w, a.c);
	if (!p.inside) return;
	EACH_IMAGE_ROW(n, y, a.n, a.h) {
		values<V> sum = {}, dy;
		for (int oy = y * a.kh; oy < (y + 1) * a.kh; oy++)
			for (int ox = p.x * a.kw; ox < (p.x + 1) * a.kw; ox++) {
				load(dy, GLOBAL(const T, a.dy) + pixel_at(n, oy, ox, p.c, a.oh, a.ow, a.c));
				add_to(sum, dy);
			}
		deposit(GLOBAL(T, a.dx) + pixel_at(n, y, p.x, p.c, a.h, a.w, a.c), sum, V, a.add);
	}
}
CHANNEL_INSTANCES(upsample_backward, pool_args)

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
template <typename T, int V> INLINE void resize_forward(const frame_args &a) {
	place p = place_of<V>(a.columns.out, a.c);
	if (!p.inside) return;
	between across = between_of(a.columns, p.x);
	EACH_IMAGE_ROW(n, oy, a.n, a.rows.out) {
		between down = between_of(a.rows, oy);
		auto at = [&](int y, int column) {
			values<V> v;
			load(v, GLOBAL(const T, a.x) + pixel_at(n, y, column, p.c, a.rows.in, a.columns.in, a.c));
			return v;
		};
		values<V> corner[4] = {at(down.low, across.low), at(down.low, across.high), at(down.high, across.low), at(down.high, across.high)}, y;
#pragma unroll
		for (int k = 0; k < V; k++) {
			float above = (1 - down.weight) * (1 - across.weight) * corner[0].v[k] + (1 - down.weight) * across.weight * corner[1].v[k];
			float below = down.weight * (1 - across.weight) * corner[2].v[k] + down.weight * across.weight * corner[3].v[k];
			y.v[k] = above + below;
		}
		store(GLOBAL(T, a.y) + pixel_at(n, oy, p.x, p.c, a.rows.out, a.columns.out, a.c), y);
	}
}
CHANNEL_INSTANCES(resize_forward, frame_args)

// resize_backward: dx (+)= the weighted sum over the pixels of the output that have a part of this one, row by row.
template <typename T, int V> INLINE void resize_backward(const frame_args &a) {
	place p = place_of<V>(a.columns.in, a.c);
	if (!p.inside) return;
	int first = first_near(a.columns, p.x);
	EACH_IMAGE_ROW(n, y, a.n, a.rows.in) {
		values<V> sum = {}, dy;
		for (int oy = first_near(a.rows, y); oy < a.rows.out; oy++) {
			between down = between_of(a.rows, oy);
			if (down.low > y) break;
			float weight = part_of(down, y);
			for (int ox = first; weight != 0 && ox < a.columns.out; ox++) {
				between across = between_of(a.columns, ox);
				if (across.low > p.x) break;
				load(dy, GLOBAL(const T, a.dy) + pixel_at(n, oy, ox, p.c, a.rows.out, a.columns.out, a.c));
				add_to(sum, dy, weight * part_of(across, p.x));
			}
		}
		deposit(GLOBAL(T, a.dx) + pixel_at(n, y, p.x, p.c, a.rows.in, a.columns.in, a.c), sum, V, a.add);
	}
}
CHANNEL_INSTANCES(resize_backward, frame_args)

// inside is where an extent has position i; -1: nowhere.
INLINE int inside(int i, int extent, int circular) {
	bool there = i >= 0 && i < extent;
	if (!circular || there) return there ? i : -1;
	int rest = i % extent;
	return rest < 0 ? rest + extent : rest;
}

// pad_forward: a thread's pixel is one of the output.
template <typename T, int V> INLINE void pad_forward(const frame_args &a) {
	place p = place_of<V>(a.columns.out, a.c);
	if (!p.inside) return;
	int x = inside(p.x - a.left, a.columns.in, a.circular);
	EACH_IMAGE_ROW(n, oy, a.n, a.rows.out) {
		int y = inside(oy - a.top, a.rows.in, a.circular);
		values<V> v = {};
		if (x >= 0 && y >= 0) load(v, GLOBAL(const T, a.x) + pixel_at(n, y, x, p.c, a.rows.in, a.columns.in, a.c));
		store(GLOBAL(T, a.y) + pixel_at(n, oy, p.x, p.c, a.rows.out, a.columns.out, a.c), v);
	}
}
CHANNEL_INSTANCES(pad_forward, frame_args)

// pad_backward: dx (+)= the sum over the copies of a pixel, row by row.
template <typename T, int V> INLINE void pad_backward(const frame_args &a) {
	place p = place_of<V>(a.columns.in, a.c);
	if (!p.inside) return;
	int row_step = a.circular ? a.rows.in : a.rows.in + a.rows.out, column_step = a.circular ? a.columns.in : a.columns.in + a.columns.out;
	int first = a.circular ? inside(p.x + a.left, a.columns.in, 1) : p.x + a.left;
	EACH_IMAGE_ROW(n, y, a.n, a.rows.in) {
		values<V> sum = {}, dy;
		for (int oy = a.circular ? inside(y + a.top, a.rows.in, 1) : y + a.top; oy >= 0 && oy < a.rows.out; oy += row_step)
			for (int ox = first; ox >= 0 && ox < a.columns.out; ox += column_step) {
				load(dy, GLOBAL(const T, a.dy) + pixel_at(n, oy, ox, p.c, a.rows.out, a.columns.out, a.c));
				add_to(sum, dy);
			}
		deposit(GLOBAL(T, a.dx) + pixel_at(n, y, p.x, p.c, a.rows.in, a.columns.in, a.c), sum, V, a.add);
	}
}
CHANNEL_INSTANCES(pad_backward, frame_args)
