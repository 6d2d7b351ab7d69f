// Products of matrices, one of which is read from an image through windows (implicit GEMM: no im2col in memory).
//
// The result's rows are pixels and its columns channels. A block of at most ROWS windows, DEPTH values of each, is copied row by row to
// scratch that stays in the second-level cache. Windows are runs of channels, so a copy is a few memcpys. The other factor was packed into
// panels of PANEL columns. A tile of at most STRIP rows and one panel is kept in registers while its depth is walked. Windows of one pixel
// that lie near one another are not copied (in_place). The values that windows of several taps share are copied once for all of them, where
// that fits (lay_lines). See Goto, van de Geijn: Anatomy of High-Performance Matrix Multiplication, 2008.
//
// Order of sums: each block of DEPTH products is summed from zero, one after the other, and added to the sum before. It depends on the
// shapes alone: not on the path's tile, not on the threads. Where lines are laid, products with rows outside the image are left out. That
// changes only the sign of zeros that underflow left, and the results of weights that are not finite.

// dot adds the products of two pairs to each lane of c: a lane of a and b is two bfloat16, the first in its lower half. The product of the
// second is added first; each sum is rounded.
#if DOT
INLINE reg dot(reg a, reg b, reg c) { return (reg)_mm512_dpbf16_ps((__m512)c, (__m512bh)a, (__m512bh)b); }
#elif HALF
typedef uint32_t pairs_of __attribute__((vector_size(LANES * 4)));
INLINE reg first_of(reg x) { return (reg)((pairs_of)x << 16); }
INLINE reg second_of(reg x) { return (reg)((pairs_of)x & 0xffff0000u); }
INLINE reg dot(reg a, reg b, reg c) { return fma_(first_of(a), first_of(b), fma_(second_of(a), second_of(b), c)); }
#else
INLINE reg dot(reg a, reg b, reg c) { return fma_(a, b, c); } // there are no pairs
#endif

// fetch is memory that will be needed. Each step of a tile brings the cache line at `at` nearer, the next step the one `pace` floats behind
// it. The next tile begins `hop` floats behind this one, until the end.
struct fetch { const float *at, *end; int64_t pace, hop; };

// piece is where some of the values of a window follow one another, behind so many that are zeros.
struct piece { const float *at; int64_t length, zeros; };

// fetches holds two of them. At `pieces`, a tile that reads lines finds the pieces of its block's first window. A packing tile copies a
// panel to `to`: the panel's step k lies at from[k] + shift.
struct fetches {
	struct fetch one, other;
	const struct piece *pieces;
	int64_t count;
	const float *const *from;
	int64_t shift;
	float *to;
};

// move brings a fetch to the next tile.
INLINE void move(struct fetch *s) {
	s->at += s->hop;
	if (s->at >= s->end) s->pace = s->hop = 0;
}

// AHEAD is the steps from which a packing tile fetches what it will read.
enum { AHEAD = 16 };

// tile computes out[i] = base[i] + sum over k of a(i, k) * b(k) for `rows` rows of `regs` registers. There a(i, k) = a[i*ai + k*ak] and
// b(k) = b[k*bk ...].
// * If `base` is null, it stands for zeros.
// * If `apart` is set, ai is no constant, and three rows share an address.
// * If `pairs` is set, the factors are pairs of bfloat16, see dot.
// * If `packing` is set, b(k) is read where it lies and packed.
// * If `lines` is set, a(i, k) lies in pieces. Each lies as far behind the piece of the first window as a does.
// Meanwhile tile brings data of the next tiles into the caches: its own part of out, and `depth` values of each fetch.
INLINE void tile(const int rows, const int regs, const int apart, const int pairs, const int packing, const int lines, int64_t ai, int64_t ak, int64_t bk,
		int64_t depth, const float *a, const float *b, struct fetches ahead, float *const *out, int64_t column, const float *const *base, int64_t base_column) {
	UNROLL for (int i = 0; i < rows; i++)
		UNROLL for (int j = 0; j < regs; j++) __builtin_prefetch(out[i] + column + j * LANES, 1);
	reg acc[STRIP][2];
	UNROLL for (int i = 0; i < rows; i++)
		UNROLL for (int j = 0; j < regs; j++) acc[i][j] = splat(0);
	const float *threes[STRIP / 3 + 1];
	int64_t shift = lines ? a - ahead.pieces->at : 0;
	for (int64_t q = 0; q < (lines ? ahead.count : 1); q++) {
		if (lines) a = ahead.pieces[q].at + shift, depth = ahead.pieces[q].length, b += ahead.pieces[q].zeros * bk;
		UNROLL for (int i = 0; i < rows; i += 3) threes[i / 3] = a + i * ai;
		for (int64_t k = 0; k < depth; k++) {
			reg bv[2];
			UNROLL for (int j = 0; j < regs; j++) bv[j] = *(const vec *)((packing ? *ahead.from + ahead.shift : b) + j * LANES);
			if (packing) {
				UNROLL for (int j = 0; j < regs; j++) __builtin_prefetch(ahead.from[AHEAD] + ahead.shift + j * LANES);
				UNROLL for (int j = 0; j < regs; j++) *(vec *)(ahead.to + j * LANES) = bv[j];
				ahead.from++;
				ahead.to += bk;
			}
			UNROLL for (int i = 0; i < rows; i++) {
				reg av = splat(apart ? threes[i / 3][i % 3 * ai] : a[i * ai]);
				UNROLL for (int j = 0; j < regs; j++) acc[i][j] = pairs ? dot(av, bv[j], acc[i][j]) : fma_(av, bv[j], acc[i][j]);
			}
			__builtin_prefetch(ahead.one.at, 0, 2);
			__builtin_prefetch(ahead.other.at, 0, 2);
			a += ak;
			UNROLL for (int i = 0; i < rows; i += 3) threes[i / 3] += ak;
			b += bk;
			ahead.one.at += ahead.one.pace;
			ahead.other.at += ahead.other.pace;
		}
	}
	if (base) {
		UNROLL for (int i = 0; i < rows; i++)
			UNROLL for (int j = 0; j < regs; j++) acc[i][j] += *(const vec *)(base[i] + base_column + j * LANES);
	}
	UNROLL for (int i = 0; i < rows; i++)
		UNROLL for (int j = 0; j < regs; j++) *(vec *)(out[i] + column + j * LANES) = acc[i][j];
}

// There is a tile function for each number of rows and registers. `by_rows` reads a packed block row by row. `by_depth` reads it depth by
// depth, and `packing` does, too, while it packs its panel. `in_rows` reads rows that are lead apart, `in_lines` rows in pieces.
// `pairs_in_rows` and `pairs_by_depth` do so with pairs.
typedef void tile_fn(int64_t lead, int64_t bk, int64_t depth, const float *a, const float *b,
	const struct fetches *ahead, float *const *out, int64_t column, const float *const *base, int64_t base_column);

#define LAYOUT(layout, rows, regs, apart, pairs, packing, lines, ai, ak) \
	static void layout##_##rows##_##regs(int64_t lead, int64_t bk, int64_t depth, const float *a, const float *b, \
			const struct fetches *ahead, float *const *out, int64_t column, const float *const *base, int64_t base_column) { \
		(void)lead; \
		tile(rows, regs, apart, pairs, packing, lines, ai, ak, bk, depth, a, b, *ahead, out, column, base, base_column); \
	}
#if HALF
#define TILE(rows, regs) \
	LAYOUT(in_rows, rows, regs, 1, 0, 0, 0, lead, 1) LAYOUT(by_depth, rows, regs, 0, 0, 0, 0, 1, lead) \
	LAYOUT(pairs_in_rows, rows, regs, 1, 1, 0, 0, lead, 1) LAYOUT(pairs_by_depth, rows, regs, 0, 1, 0, 0, 1, lead)
#else
#define TILE(rows, regs) \
	LAYOUT(by_rows, rows, regs, 0, 0, 0, 0, LEAD, 1) LAYOUT(by_depth, rows, regs, 0, 0, 0, 0, 1, lead) \
	LAYOUT(in_rows, rows, regs, 1, 0, 0, 0, lead, 1) LAYOUT(packing, rows, regs, 0, 0, 1, 0, 1, lead) \
	LAYOUT(in_lines, rows, regs, 1, 0, 0, 1, lead, 1)
#endif
#define TILES(rows) TILE(rows, 1) TILE(rows, 2)
#define ENTRY(layout, rows) {layout##_##rows##_1, layout##_##rows##_2}

TILES(1) TILES(2) TILES(3) TILES(4) TILES(5) TILES(6)
#if PATH == 2
TILES(7) TILES(8) TILES(9) TILES(10) TILES(11) TILES(12) TILES(13) TILES(14)
#define LARGER(layout) \
	, ENTRY(layout, 7), ENTRY(layout, 8), ENTRY(layout, 9), ENTRY(layout, 10), ENTRY(layout, 11), ENTRY(layout, 12), \
		ENTRY(layout, 13), ENTRY(layout, 14)
#else
#define LARGER(layout)
#endif
#define ENTRIES(layout) \
	{ENTRY(layout, 1), ENTRY(layout, 2), ENTRY(layout, 3), ENTRY(layout, 4), ENTRY(layout, 5), ENTRY(layout, 6) LARGER(layout)}

#if HALF
static tile_fn *const pairs_in_rows[STRIP][2] = ENTRIES(pairs_in_rows);
static tile_fn *const pairs_by_depth[STRIP][2] = ENTRIES(pairs_by_depth);
#else
static tile_fn *const by_rows[STRIP][2] = ENTRIES(by_rows);
static tile_fn *const packing[STRIP][2] = ENTRIES(packing);
static tile_fn *const in_lines[STRIP][2] = ENTRIES(in_lines);
#endif
static tile_fn *const by_depth[STRIP][2] = ENTRIES(by_depth);
static tile_fn *const in_rows[STRIP][2] = ENTRIES(in_rows);

// edge is tile for a panel with fewer columns than its registers hold: through a tile on the stack. b has room for whole
// registers.
static void edge(tile_fn *fn, int64_t rows, int64_t columns, int64_t lead, int64_t bk, int64_t depth, const float *a,
		const float *b, const struct fetches *ahead, float *const *out, int64_t column, const float *const *base, int64_t base_column) {
	float whole[STRIP][PANEL];
	float *to[STRIP];
	for (int64_t i = 0; i < STRIP; i++) to[i] = whole[i];
	fn(lead, bk, depth, a, b, ahead, to, 0, 0, 0);
	for (int64_t i = 0; i < rows; i++)
		for (int64_t j = 0; j < columns; j++)
			out[i][column + j] = base ? whole[i][j] + base[i][base_column + j] : whole[i][j];
}

// walk calls the tiles of one panel for all strips of a block of rows, and moves what is fetched on.
static void walk(tile_fn *const fns[STRIP][2], int64_t rows, int64_t columns, int64_t ai, int64_t lead, int64_t bk,
		int64_t depth, const float *a, const float *b, struct fetches *ahead, float *const *out, int64_t column,
		const float *const *base, int64_t base_column) {
	if (rows == 0) return;
	int64_t n = ceildiv(rows, STRIP);
	int regs = columns > LANES ? 2 : 1;
	for (int64_t s = 0, r0 = 0, r1, fewest = rows / n, more = rows % n; s < n; s++, r0 = r1) { // about equal strips
		r1 = r0 + fewest + (s < more);
		tile_fn *fn = fns[r1 - r0 - 1][regs - 1];
		const float *const *from = base ? base + r0 : 0;
		if (columns == regs * LANES)
			fn(lead, bk, depth, a + r0 * ai, b, ahead, out + r0, column, from, base_column);
		else
			edge(fn, r1 - r0, columns, lead, bk, depth, a + r0 * ai, b, ahead, out + r0, column, from, base_column);
		move(&ahead->one);
		move(&ahead->other);
	}
}

// panel_fetch fetches a panel in so many strips.
INLINE struct fetch panel_fetch(const float *panel, int64_t strips, int64_t depth) {
	int64_t pace = PANEL / strips;
	return (struct fetch){panel, panel + PANEL * depth, pace, pace * depth};
}

// strips is walk for one panel alone, which fetches the panel at next.
static void strips(tile_fn *const fns[STRIP][2], int64_t rows, int64_t columns, int64_t ai, int64_t lead, int64_t bk,
		int64_t depth, const float *a, const float *b, const float *next, float *const *out, int64_t column,
		const float *const *base, int64_t base_column) {
	struct fetches ahead = {.one = panel_fetch(next, most(ceildiv(rows, STRIP), 1), depth), .other = {next, next, 0, 0}};
	walk(fns, rows, columns, ai, lead, bk, depth, a, b, &ahead, out, column, base, base_column);
}

// place locates the window of a pixel: its image, the row of tap 0, and the value of tap 0 within a row of the image. Both row and value
// may be outside the image. The field `left` counts the pixels from this one to the end of its row of the grid.
struct place { const elem *image; int64_t h, at, left; };

struct pixel { int64_t n, h, w; };

INLINE struct pixel pixel_at(const struct grid *g, int64_t row) {
	return (struct pixel){row / (g->h * g->w), row / g->w % g->h, row % g->w};
}

// next_row moves to the first pixel of the next row of the grid.
INLINE void next_row(const struct grid *g, struct pixel *p) {
	p->w = 0;
	if (++p->h == g->h) p->h = 0, p->n++;
}

// locate finds the places of pixels p, p+1, ...; channel is the first of the group.
static void locate(const struct grid *g, struct pixel p, int64_t rows, int64_t channel, struct place *places) {
	for (int64_t n; rows > 0; rows -= n, next_row(g, &p)) {
		n = least(g->w - p.w, rows);
		struct place at = {
			E(g->image) + p.n * g->height * g->width * g->pixel, p.h * g->th.mul + g->th.off,
			(p.w * g->tw.mul + g->tw.off) * g->pixel + channel, g->w - p.w,
		};
		for (int64_t i = 0; i < n; i++, at.at += g->tw.mul * g->pixel, at.left--) *places++ = at;
	}
}

// address returns the address of the first value of a window, `down` rows of the image further down.
INLINE const elem *address(const struct grid *g, const struct place *p, int64_t down) {
	return p->image + (p->h + down) * g->width * g->pixel + p->at;
}

// copy_values copies n elements; the last register may overlap the one before it.
INLINE void copy_values(elem *dst, const elem *src, int64_t n) {
	if (n < LANES) {
		for (int64_t i = 0; i < n; i++) dst[i] = src[i];
		return;
	}
	int64_t i = 0;
	for (; i + LANES <= n; i += LANES) *(some *)(dst + i) = *(const some *)(src + i);
	if (i < n) *(some *)(dst + n - LANES) = *(const some *)(src + n - LANES);
}

// copy_rows copies rows of n elements; two registers hold those of the first layer of many a network.
INLINE void copy_rows(elem *dst, int64_t lead, const elem *src, int64_t step, int64_t rows, int64_t n) {
	if (n > LANES && n < 2 * LANES)
		for (; rows > 0; rows--, dst += lead, src += step) {
			some first = *(const some *)src, last = *(const some *)(src + n - LANES);
			*(some *)dst = first;
			*(some *)(dst + n - LANES) = last;
		}
	else
		for (; rows > 0; rows--, dst += lead, src += step) copy_values(dst, src, n);
}

// copy_clipped copies values [from, to) of a line of the given width, with zeros for those outside.
static void copy_clipped(elem *dst, const elem *line, int64_t from, int64_t to, int64_t width) {
	int64_t a = least(most(from, 0), to), b = most(least(to, width), a);
	for (int64_t i = from; i < a; i++) dst[i - from] = 0;
	copy_values(dst + (a - from), line + a, b - a);
	for (int64_t i = b; i < to; i++) dst[i - from] = 0;
}

// gather_run copies one run of the windows at places, which lies `down` rows and `right` floats behind their first value. All
// windows of a row of the grid that see no value outside the image are copied without a look at each.
static void gather_run(const struct grid *g, const struct place *places, int64_t rows, int64_t down, int64_t right, int64_t length,
		elem *dst, int64_t lead) {
	int64_t line = g->width * g->pixel, step = g->tw.mul * g->pixel;
	for (int64_t n; rows > 0; rows -= n, places += n) {
		n = least(places->left, rows);
		int64_t h = places->h + down, at = places->at + right, inner = 0, end = n;
		int inside = h >= 0 && h < g->height;
		const elem *src = places->image + (inside ? h * line : 0);
		while (inner < end && (!inside || at + inner * step < 0)) inner++;
		while (end > inner && at + (end - 1) * step + length > line) end--;
		for (int64_t i = 0; i < n; i++, dst += lead) {
			if (i == inner && i < end) {
				copy_rows(dst, lead, src + at + i * step, step, end - i, length);
				dst += (end - i) * lead;
				if ((i = end) == n) break;
			}
			copy_clipped(dst, src, at + i * step, at + i * step + length, inside ? line : 0);
		}
	}
}

// gather copies values [k0, k1) of the windows at places to the rows of dst. A window is cut into runs that are
// contiguous in the image: one tap, or all taps of w where these follow one another.
static void gather(const struct grid *g, const struct place *places, int64_t rows, int64_t k0, int64_t k1, elem *dst, int64_t lead) {
	if (k0 == k1) return;
	int64_t runs = g->joined ? 1 : g->tw.count, run = g->depth * g->tw.count / runs;
	int64_t th = k0 / run / runs, tw = k0 / run % runs, skip = k0 % run;
	while (k0 < k1) {
		int64_t length = least(run - skip, k1 - k0);
		gather_run(g, places, rows, th * g->th.step, tw * g->tw.step * g->pixel + skip, length, dst, lead);
		dst += length;
		k0 += length;
		skip = 0;
		if (++tw == runs) tw = 0, th++;
	}
}

#if !HALF
// round_rows rounds rows of values, lead apart, to TF32 where they are: see kernels.RoundTF32.
static void round_rows(float *values, int64_t rows, int64_t width, int64_t lead) {
	typedef uint32_t __attribute__((may_alias)) word;
	for (int64_t r = 0; r < rows; r++) {
		word *v = (word *)(values + r * lead);
		INDEPENDENT for (int64_t i = 0; i < width; i++) {
			uint32_t nan = (v[i] & 0x7fffffff) > 0x7f800000;
			v[i] = (nan ? v[i] | 0x400000 : v[i] + 0x1000) & ~0x1fffu;
		}
	}
}

#endif

// panel_width is the columns that a panel of so many columns takes: whole registers.
INLINE int64_t panel_width(int64_t columns) { return columns > LANES ? PANEL : LANES; }

// transpose turns LANES rows of LANES values over, src_step apart, to dst_step apart. For s = 1, 2, 4, ... it swaps the off-diagonal
// quarters of each square of 2s rows.
#define LOW(lane, s) ((lane) & (s) ? LANES + (lane) - (s) : (lane))
#define HIGH(lane, s) ((lane) & (s) ? LANES + (lane) : (lane) + (s))
#if PATH == 2
#define LANE_LIST(f, s) f(0, s), f(1, s), f(2, s), f(3, s), f(4, s), f(5, s), f(6, s), f(7, s), f(8, s), f(9, s), f(10, s), \
	f(11, s), f(12, s), f(13, s), f(14, s), f(15, s)
#elif PATH == 1
#define LANE_LIST(f, s) f(0, s), f(1, s), f(2, s), f(3, s), f(4, s), f(5, s), f(6, s), f(7, s)
#else
#define LANE_LIST(f, s) f(0, s), f(1, s), f(2, s), f(3, s)
#endif
#if defined(__clang__)
#define SHUFFLE(a, b, f, s) __builtin_shufflevector(a, b, LANE_LIST(f, s))
#else
typedef int32_t lanes __attribute__((vector_size(LANES * 4)));
#define SHUFFLE(a, b, f, s) __builtin_shuffle(a, b, (lanes){LANE_LIST(f, s)})
#endif
#define SWAP_QUARTERS(s) \
	UNROLL for (int i = 0; i < LANES; i++) \
		if (!(i & (s))) { \
			reg low = SHUFFLE(t[i], t[i + (s)], LOW, s), high = SHUFFLE(t[i], t[i + (s)], HIGH, s); \
			t[i] = low; \
			t[i + (s)] = high; \
		}

static void transpose(const float *src, int64_t src_step, float *dst, int64_t dst_step) {
	reg t[LANES];
	UNROLL for (int i = 0; i < LANES; i++) t[i] = *(const vec *)(src + i * src_step);
	SWAP_QUARTERS(1)
	SWAP_QUARTERS(2)
#if PATH >= 1
	SWAP_QUARTERS(4)
#endif
#if PATH == 2
	SWAP_QUARTERS(8)
#endif
	UNROLL for (int i = 0; i < LANES; i++) *(vec *)(dst + i * dst_step) = t[i];
}

// in_place reports whether the windows are the pixels of the image, one after the other, and their rows lie near one another. They do if a
// strip of rows spreads over the sets of the first-level cache.
INLINE int in_place(const struct grid *g) {
	return g->th.count == 1 && g->tw.count == 1 && g->th.mul == 1 && g->tw.mul == 1 && g->th.off == 0 && g->tw.off == 0 &&
		g->h == g->height && g->w == g->width && g->pixel <= IN_PLACE;
}

// image_fetch fetches what the windows of the rows behind these see, in so many steps for each strip; nothing when that would
// not fit beside what is in use.
static struct fetch image_fetch(const struct grid *g, const struct place *places, int64_t rows, int64_t steps) {
	const float *from = (const float *)address(g, &places[rows - 1], (g->th.count - 1) * g->th.step);
	int64_t floats = rows * g->th.mul * g->tw.mul * g->pixel * (int64_t)sizeof(elem) / 4;
	int64_t pace = least(ceildiv(floats, most(steps * ceildiv(rows, STRIP), 1)), CACHE_LINE);
	return (struct fetch){from, from + floats, floats <= MOST_AHEAD ? pace : 0, 0};
}

// result_rows writes the address of each row's first channel.
static void result_rows(const struct gemm_args *g, struct pixel p, int64_t rows, int64_t channel, elem **out) {
	for (int64_t n; rows > 0; rows -= n, next_row(&g->grid, &p)) {
		n = least(g->grid.w - p.w, rows);
		int64_t h = p.h * g->mul_h + g->off_h, w = p.w * g->mul_w + g->off_w;
		elem *at = E(g->result) + ((p.n * g->rows + h) * g->cols + w) * g->pixel + channel;
		for (int64_t i = 0; i < n; i++, at += g->mul_w * g->pixel) *out++ = at;
	}
}

#if HALF
#include "gemm_bf16.h"
#else
enum { COLUMN_AHEAD = 4 * CACHE_LINE }; // floats of a column that are fetched before they are packed

// pack_columns packs k values of columns that are rows in memory: dst[i*width + j] = src[j*row + i].
static void pack_columns(const float *src, int64_t row, int64_t k, int64_t columns, int64_t width, float *dst) {
	int64_t next = COLUMN_AHEAD / k * LANES, at = COLUMN_AHEAD % k; // columns that are fetched, and where
	for (int64_t j = 0; j < columns; j += LANES)
		for (int64_t i = 0; i < k; i += LANES) {
			if (j + LANES <= columns && i + LANES <= k) {
				UNROLL for (int y = 0; y < LANES; y++) __builtin_prefetch(src + (next + y) * row + at);
				at += LANES;
				if (at >= k) at = 0, next += LANES;
				transpose(src + j * row + i, row, dst + i * width + j, width);
				continue;
			}
			for (int64_t y = i; y < least(i + LANES, k); y++)
				for (int64_t x = j; x < least(j + LANES, columns); x++) dst[y * width + x] = src[x * row + y];
		}
}

// pack_taps packs rows as they are, tap by tap: value k of a column is that of tap k/out and output channel k%out. Columns
// may reach over several taps of w, those outside the kernel are zeros.
static void pack_taps(const struct pack_args *p, const float *weight, int64_t first, int64_t columns, int64_t width, float *dst) {
	int64_t line = p->kw * p->depth, row = p->kh * line, end = p->k0 + p->k;
	for (int64_t k = p->k0; k < end;) {
		int64_t t = k / p->out, o = k % p->out, count = least(p->out - o, end - k);
		int64_t kh = p->th.first + t / p->tw.count * p->th.stride, kw = p->tw.first + t % p->tw.count * p->tw.stride;
		int64_t from = kw * p->depth + first, inside = from >= 0 && from + columns <= line;
		const float *src = weight + kh * line + o * row;
		for (int64_t i = 0; i < count; i++, dst += width, src += row) {
			if (inside)
				copy_values(dst, src + from, columns);
			else
				copy_clipped(dst, src, from, from + columns, line);
		}
		k += count;
	}
}

// pack_weights: a task is one panel, k values of each of its columns, k outermost, zeros behind the last column.
static void pack_weights(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct pack_args *p = &job->args.pack;
	int64_t group = task / p->panels, panel = task % p->panels, first = p->first + panel * PANEL;
	int64_t columns = least(p->columns - panel * PANEL, PANEL), width = panel_width(columns);
	int64_t row = p->kh * p->kw * p->depth; // of one output channel
	const float *weight = F(p->weight) + group * p->out * row;
	float *dst = F(p->packed) + group * p->group_size + panel * PANEL * p->k;
	for (int64_t i = 0; columns < width && i < p->k; i++)
		for (int64_t j = columns; j < width; j++) dst[i * width + j] = 0;
	if (p->transposed)
		pack_taps(p, weight, first, columns, width, dst);
	else
		pack_columns(weight + first * row + p->k0, row, p->k, columns, width, dst);
	if (p->tf32) round_rows(dst, 1, p->k * width, 0);
}

// lines are rows of an image as the windows of a block see them, with zeros left and right of them. Each row is copied once, for windows of
// several taps share most of their values. Windows of one row of the grid, a segment, are one step apart in their lines.
struct lines {
	int64_t segments, strips;
	int64_t rows[MOST_LINES];                // windows of each segment
	const float *at[MOST_LINES][MOST_LINES]; // where the first window of each finds its taps of h; null: outside the image
};

// line_of returns the number of a row of an image among those that are there, which gets the next one if it is none of them.
INLINE int64_t line_of(const elem *row, const elem **have, int64_t *count) {
	for (int64_t i = *count; i-- > 0;)
		if (have[i] == row) return i;
	if (*count < MOST_LINES) have[*count] = row;
	return (*count)++;
}

// lay_lines copies the lines of taps [first, last) of h; 0: they are too many, or cost more than they save.
static int lay_lines(const struct grid *g, const struct place *places, int64_t rows, int64_t first, int64_t last, struct lines *l, float *to) {
	if (!g->joined || g->th.count * g->tw.count == 1 || g->tw.mul > g->tw.count || g->w < FEWEST || g->tw.count * g->depth < FEWEST) return 0;
	if (last - first > MOST_LINES) return 0;
	int64_t step = g->tw.mul * g->pixel, one = places->left >= rows, line = g->width * g->pixel, count = 0;
	int64_t from = one ? places->at : g->tw.off * g->pixel, width = ((one ? rows : g->w) - 1) * step + g->tw.count * g->pixel;
	const elem *have[MOST_LINES];
	l->segments = l->strips = 0;
	for (int64_t n; rows > 0; rows -= n, places += n, l->segments++) {
		if (l->segments == MOST_LINES) return 0;
		n = least(places->left, rows);
		l->rows[l->segments] = n, l->strips += ceildiv(n, STRIP);
		for (int64_t t = first; t < last; t++) {
			int64_t h = places->h + t * g->th.step;
			l->at[l->segments][t - first] = 0;
			if (h < 0 || h >= g->height) continue;
			int64_t number = line_of(places->image + h * line, have, &count);
			if (count > MOST_LINES || count * width > ROWS * LEAD) return 0;
			l->at[l->segments][t - first] = to + number * width + (places->at - from);
		}
	}
	for (int64_t i = 0; i < count; i++) copy_clipped((elem *)to + i * width, have[i], from, from + width, line);
	return 1;
}

// cut_windows cuts values [k0, k1) of the windows of a segment into pieces, without those outside the image, and returns how many they
// are. If there is none, the first is empty and points to none, for its address is read.
static int64_t cut_windows(const struct grid *g, const float *const *taps, int64_t first, int64_t k0, int64_t k1, struct piece *pieces,
		const float *none) {
	int64_t run = g->tw.count * g->depth, n = 0, zeros = 0;
	*pieces = (struct piece){none, 0, 0};
	for (int64_t length; k0 < k1; k0 += length) {
		const float *tap = taps[k0 / run - first];
		length = least(run - k0 % run, k1 - k0);
		if (tap)
			pieces[n++] = (struct piece){tap + k0 % run, length, zeros}, zeros = 0;
		else
			zeros += length;
	}
	return n;
}

// gemm: a task is a block of rows and a block of columns of one group. Scratch: float ROWS,LEAD.
static void gemm(const struct job *job, int64_t task, char *scratch) {
	const struct gemm_args *g = &job->args.gemm;
	int64_t rows = g->grid.n * g->grid.h * g->grid.w, panels = ceildiv(g->columns, PANEL);
	int64_t block = task % g->row_blocks, part = task / g->row_blocks % g->column_blocks;
	int64_t group = task / g->row_blocks / g->column_blocks;
	int64_t r0 = rows * block / g->row_blocks, r1 = rows * (block + 1) / g->row_blocks;
	int64_t p0 = panels * part / g->column_blocks, p1 = panels * (part + 1) / g->column_blocks;
	int64_t channel = group * g->group_columns + g->first;
	const float *a = (float *)scratch, *bias[ROWS];
	float *out[ROWS];
	struct pixel start = pixel_at(&g->grid, r0);
	struct place places[ROWS];
	locate(&g->grid, start, r1 - r0, group * g->window_step, places);
	result_rows(g, start, r1 - r0, channel, out);
	for (int64_t i = 0; g->bias && i < r1 - r0; i++) bias[i] = F(g->bias) + channel;
	const float *const *base = g->accumulate ? (const float *const *)out : g->bias ? bias : 0;
	int there = in_place(&g->grid) && !g->tf32;
	int64_t run = g->grid.tw.count * g->grid.depth, tap = run ? g->k0 / run : 0;
	struct lines l;
	int lined = !there && !g->tf32 && g->k > 0 && lay_lines(&g->grid, places, r1 - r0, tap, ceildiv(g->k0 + g->k, run), &l, (float *)scratch);
	if (!lined) l.segments = 1, l.rows[0] = r1 - r0, l.strips = ceildiv(r1 - r0, STRIP);
	int64_t k0 = 0, lead = lined ? g->grid.tw.mul * g->grid.pixel : there ? g->grid.pixel : LEAD;
	struct fetches ahead = {.other = image_fetch(&g->grid, places, r1 - r0, (p1 - p0) * g->k)};
	do {
		int64_t depth = least(g->k - k0, DEPTH), from = g->k0 + k0;
		struct piece pieces[MOST_LINES][MOST_LINES]; // at most one for each tap of h
		int64_t counts[MOST_LINES];
		if (there)
			a = address(&g->grid, places, 0) + from;
		else if (!lined)
			gather(&g->grid, places, r1 - r0, from, from + depth, (float *)scratch, LEAD);
		for (int64_t s = 0; lined && s < l.segments; s++) counts[s] = cut_windows(&g->grid, l.at[s], tap, from, from + depth, pieces[s], a);
		if (g->tf32) round_rows((float *)scratch, r1 - r0, depth, LEAD);
		ahead.other.hop = depth * ahead.other.pace;
		for (int64_t panel = p0; panel < p1; panel++) {
			int64_t columns = least(g->columns - panel * PANEL, PANEL), width = panel_width(columns);
			const float *b = F(g->packed) + group * g->group_size + panel * PANEL * g->k + k0 * width;
			ahead.one = panel_fetch(b + PANEL * g->k, l.strips, depth);
			for (int64_t s = 0, r = 0; s < l.segments; r += l.rows[s++]) {
				if (lined) ahead.pieces = pieces[s], ahead.count = counts[s];
				walk(lined ? in_lines : there ? in_rows : by_rows, l.rows[s], columns, lead, lead, width, depth, lined ? pieces[s]->at : a, b,
					&ahead, out + r, panel * PANEL, base ? base + r : 0, panel * PANEL);
			}
		}
		base = (const float *const *)out;
		k0 += depth;
	} while (k0 < g->k);
}

// whole_panels: on every path, each panel of a weight gradient's columns is whole registers of one tap, which lie in the image as they
// are needed.
INLINE int whole_panels(const struct gradient_args *g) {
	const struct grid *at = &g->grid;
	return at->depth % WIDEST == 0 || (at->th.count * at->tw.count == 1 && at->depth % (WIDEST / 2) == 0);
}

// tap_sources finds where a tap's values of so many windows lie, from a pixel and a channel on; zeros stand for those outside.
static void tap_sources(const struct grid *g, struct pixel p, int64_t count, int64_t tap, int64_t channel, const float **from) {
	static const float zeros[GRAD_COLS];
	int64_t down = g->th.off + tap / g->tw.count * g->th.step, right = g->tw.off + tap % g->tw.count * g->tw.step;
	int64_t step = g->tw.mul * g->pixel;
	for (int64_t n; count > 0; count -= n, from += n, next_row(g, &p)) {
		n = least(g->w - p.w, count);
		int64_t h = p.h * g->th.mul + down, w = p.w * g->tw.mul + right, i = 0;
		int64_t before = w < 0 ? ceildiv(-w, g->tw.mul) : 0, end = w < g->width ? least(ceildiv(g->width - w, g->tw.mul), n) : 0;
		if (h < 0 || h >= g->height) end = 0;
		const float *src = end > before ? F(g->image) + ((p.n * g->height + h) * g->width + w + before * g->tw.mul) * g->pixel + channel : 0;
		for (; i < least(before, n); i++) from[i] = zeros;
		for (; i < end; i++, src += step) from[i] = src;
		for (; i < n; i++) from[i] = zeros;
	}
}

// gradient_panels adds the products of some pixels, dy, lead apart, and their windows to rows of the weight gradient. It packs each
// panel while it multiplies the first strip.
static void gradient_panels(const struct gradient_args *g, int64_t pixel, int64_t channel, int64_t depth, int64_t c0, int64_t c1, int64_t rows,
		const float *dy, int64_t lead, float *panel, struct fetches *ahead, float *const *out, const float *const *base) {
	const float *from[GRAD_DEPTH + AHEAD];
	int64_t first = rows / ceildiv(rows, STRIP), tap = -1;
	for (int64_t i = depth; i < depth + AHEAD; i++) from[i] = panel;
	ahead->from = from, ahead->to = panel;
	for (int64_t c = 0; c < c1 - c0; c += PANEL, ahead->shift += PANEL) {
		int64_t columns = least(c1 - c0 - c, PANEL);
		if (tap != (c0 + c) / g->grid.depth) {
			tap = (c0 + c) / g->grid.depth, ahead->shift = 0;
			tap_sources(&g->grid, pixel_at(&g->grid, pixel), depth, tap, channel + (c0 + c) % g->grid.depth, from);
		}
		for (int64_t i = 0; g->tf32 && i < depth; i++) copy_values(panel + i * PANEL, from[i] + ahead->shift, columns);
		if (g->tf32) round_rows(panel, depth, columns, PANEL);
		walk(g->tf32 ? by_depth : packing, first, columns, 1, lead, PANEL, depth, dy, panel, ahead, out, c, base, c);
		walk(by_depth, rows - first, columns, 1, lead, PANEL, depth, dy + first, panel, ahead, out + first, c, base ? base + first : 0, c);
	}
}

// weight_gradient: a task is a block of rows (output channels) and of columns (taps and input channels) of one
// group, for one chunk of the pixels. Scratch: dy, float GRAD_DEPTH,GRAD_LEAD_A, and a panel, or GRAD_COPIED of dy and of windows.
static void weight_gradient(const struct job *job, int64_t task, char *scratch) {
	const struct gradient_args *g = &job->args.gradient;
	int64_t chunk = task % g->chunks, rest = task / g->chunks;
	int64_t row = rest % g->row_blocks, column = rest / g->row_blocks % g->column_blocks;
	int64_t group = rest / g->row_blocks / g->column_blocks;
	int64_t pixels = g->grid.n * g->grid.h * g->grid.w;
	int64_t p0 = pixels * chunk / g->chunks, p1 = pixels * (chunk + 1) / g->chunks;
	int64_t r0 = g->out * row / g->row_blocks, r1 = g->out * (row + 1) / g->row_blocks;
	int64_t panels = ceildiv(g->columns, PANEL);
	int64_t c0 = panels * column / g->column_blocks * PANEL, c1 = least(panels * (column + 1) / g->column_blocks * PANEL, g->columns);
	int64_t step = g->groups * g->out;
	int dy_there = !g->tf32 && step <= GRAD_IN_PLACE, whole = whole_panels(g);
	int x_there = whole && !g->tf32 && in_place(&g->grid) && g->grid.pixel * (r1 - r0) <= GRAD_DIRECT;
	int64_t most_depth = whole ? GRAD_DEPTH : GRAD_COPIED, lead = dy_there ? step : GRAD_LEAD_A, bk = x_there ? g->grid.pixel : GRAD_LEAD_B;
	float *copied_a = (float *)scratch, *copied_b = copied_a + most_depth * GRAD_LEAD_A, *out[GRAD_ROWS];
	for (int64_t i = r0; i < r1; i++)
		out[i - r0] = F(g->part) + ((chunk * g->groups + group) * g->out + i) * g->columns + c0;
	const float *const *base = g->accumulate ? (const float *const *)out : 0;
	struct place places[GRAD_COPIED], next;
	while (p0 < p1) {
		int64_t depth = ceildiv(p1 - p0, ceildiv(p1 - p0, most_depth)); // about equal parts
		const float *dy = F(g->dy) + p0 * step + group * g->out + r0, *a = dy_there ? dy : copied_a, *b = copied_b;
		locate(&g->grid, pixel_at(&g->grid, p0), whole ? 1 : depth, group * g->window_step, places);
		if (x_there) b = address(&g->grid, places, 0) + c0;
		if (!dy_there) copy_rows(copied_a, lead, dy, step, depth, r1 - r0);
		if (!whole) gather(&g->grid, places, depth, c0, c1, copied_b, bk);
		if (g->tf32) round_rows(copied_a, depth, r1 - r0, lead);
		if (g->tf32 && !whole) round_rows(copied_b, depth, c1 - c0, bk);
		dy += depth * step;
		locate(&g->grid, pixel_at(&g->grid, p0 + depth), 1, group * g->window_step, &next);
		const float *x = address(&g->grid, &next, 0);
		struct fetches ahead = {
			.one = {dy, dy + r1 - r0, step, CACHE_LINE},
			.other = {x, x + least(g->grid.depth, c1 - c0), g->grid.tw.mul * g->grid.pixel, CACHE_LINE},
		};
		if (whole && !x_there)
			gradient_panels(g, p0, group * g->window_step, depth, c0, c1, r1 - r0, a, lead, copied_b, &ahead, out, base);
		else
			for (int64_t c = 0; c < c1 - c0; c += PANEL)
				walk(by_depth, r1 - r0, least(c1 - c0 - c, PANEL), 1, lead, bk, depth, a, b + c, &ahead, out, c, base, c);
		base = (const float *const *)out;
		p0 += depth;
	}
}

#endif

// sum_parts: a task is a chunk of elements.
static void sum_parts(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct sum_args *s = &job->args.sum;
	int64_t from = task * s->chunk, to = least(from + s->chunk, s->n);
	float *restrict out = F(s->out);
	for (int64_t q = 0; q < s->parts; q++) {
		const float *restrict part = F(s->part) + q * s->n;
		if (q == 0 && !s->accumulate)
			for (int64_t i = from; i < to; i++) out[i] = part[i];
		else
			for (int64_t i = from; i < to; i++) out[i] += part[i];
	}
}

// bias_gradient: a task is 64 channels.
static void bias_gradient(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct bias_args *b = &job->args.bias;
	int64_t c0 = task * 64, width = least(b->channels - c0, 64);
	double sum[64] = {0};
	for (int64_t r = 0; r < b->rows; r++) {
		const elem *restrict dy = E(b->dy) + r * b->channels + c0;
		for (int64_t c = 0; c < width; c++) sum[c] += of(dy[c]);
	}
	float *out = F(b->out) + c0;
	for (int64_t c = 0; c < width; c++) out[c] = b->accumulate ? out[c] + (float)sum[c] : (float)sum[c];
}
