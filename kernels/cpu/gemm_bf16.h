// Products of matrices in bfloat16; see gemm.h, whose tiles these are. A pair is two elements that follow one another in the depth
// of a product, the first in the lower half of a word. The tile adds both products, the second's first, and rounds each sum to float32.
// VDPBF16PS does that at once; elsewhere two FMAs of widened elements give the same bits. Blocks are DEPTH pairs deep; an odd depth
// ends with a zero. Sums stay in float32, in scratch, until they are complete and are rounded once.
//
// Order of sums: as in gemm.h it depends on the shapes alone.

typedef uint32_t __attribute__((may_alias)) word;

// written: tiles read as floats what was written as elements and words.
#define WRITTEN() __asm__ volatile("" ::: "memory")

// weights are some in memory: float, which are rounded as they are packed, or bfloat16.
struct weights { const float *wide; const elem *narrow; };

INLINE struct weights behind(struct weights w, int64_t n) { return (struct weights){w.wide + n, w.narrow + n}; }

// round_weights makes elements of n weights.
INLINE void round_weights(elem *restrict dst, struct weights src, const int narrow, int64_t n) {
	if (narrow)
		memcpy(dst, src.narrow, (size_t)n * sizeof(elem));
	else
		for (int64_t i = 0; i < n; i++) dst[i] = to(src.wide[i]);
}

// pack_columns packs k values of columns that are rows in memory, in pairs.
INLINE void pack_columns(struct weights src, const int narrow, int64_t row, int64_t k, int64_t columns, int64_t width, word *dst) {
	for (int64_t j = 0; j < width; j += LANES)
		for (int64_t i = 0; i < k; i += 2 * LANES) {
			elem block[2 * LANES * LANES] = {0};
			reg turned[LANES];
			int64_t n = least(k - i, 2 * LANES);
			for (int64_t x = 0; x < least(columns - j, LANES); x++) {
				struct weights from = behind(src, (j + x) * row + i);
				if (n == 2 * LANES)
					round_weights(block + x * 2 * LANES, from, narrow, 2 * LANES);
				else
					round_weights(block + x * 2 * LANES, from, narrow, n);
			}
			transpose((const float *)block, LANES, (float *)turned, LANES);
			for (int64_t y = 0; y < ceildiv(n, 2); y++) *(vec *)(dst + (i / 2 + y) * width + j) = turned[y];
		}
}

// pack_taps packs rows as they are, tap by tap, in pairs of rows: see gemm.h.
INLINE void pack_taps(const struct pack_args *p, struct weights weight, const int narrow, int64_t first, int64_t columns, int64_t width, word *dst) {
	int64_t line = p->kw * p->depth, row = p->kh * line;
	for (int64_t k = 0, t = 0, o = 0; k < p->k; k++) {
		int64_t kh = p->th.first + t / p->tw.count * p->th.stride, kw = p->tw.first + t % p->tw.count * p->tw.stride;
		int64_t from = kw * p->depth + first, a = least(most(-from, 0), columns), b = most(least(line - from, columns), a);
		struct weights src = behind(weight, kh * line + o * row + from);
		word *restrict pair = dst + k / 2 * width;
		if (k % 2 == 0) {
			for (int64_t c = 0; c < width; c++) pair[c] = 0;
			for (int64_t c = a; c < b; c++) pair[c] = narrow ? src.narrow[c] : to(src.wide[c]);
		} else
			for (int64_t c = a; c < b; c++) pair[c] |= (word)(narrow ? src.narrow[c] : to(src.wide[c])) << 16;
		if (++o == p->out) o = 0, t++;
	}
}

INLINE void pack_panel(const struct pack_args *p, const int narrow, int64_t group, int64_t panel) {
	int64_t first = p->first + panel * PANEL, columns = least(p->columns - panel * PANEL, PANEL), width = panel_width(columns);
	int64_t row = p->kh * p->kw * p->depth; // of one output channel
	struct weights weight = behind((struct weights){F(p->weight), E(p->weight)}, group * p->out * row);
	word *dst = (word *)F(p->packed) + group * p->group_size + panel * PANEL * ceildiv(p->k, 2);
	if (p->transposed)
		pack_taps(p, weight, narrow, first, columns, width, dst);
	else
		pack_columns(behind(weight, first * row), narrow, row, p->k, columns, width, dst);
}

// pack_weights: a task is one panel, all pairs of each of its columns, k outermost, zeros behind the last column.
static void pack_weights(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct pack_args *p = &job->args.pack;
	if (p->narrow)
		pack_panel(p, 1, task / p->panels, task % p->panels);
	else
		pack_panel(p, 0, task / p->panels, task % p->panels);
}

// round_sums rounds complete sums of some columns, with a bias and what is there added where there is one or it is wanted.
INLINE void round_sums(const float *restrict sums, const float *restrict bias, const int add, int64_t columns, elem *restrict out) {
	if (bias)
		for (int64_t c = 0; c < columns; c++) out[c] = to(add ? sums[c] + bias[c] + of(out[c]) : sums[c] + bias[c]);
	else
		for (int64_t c = 0; c < columns; c++) out[c] = to(add ? sums[c] + of(out[c]) : sums[c]);
}

// gemm: a task is a block of rows and a block of columns of one group, and all of their depth. Scratch: word ROWS,LEAD and float
// ROWS and the columns.
static void gemm(const struct job *job, int64_t task, char *scratch) {
	const struct gemm_args *g = &job->args.gemm;
	int64_t rows = g->grid.n * g->grid.h * g->grid.w, panels = ceildiv(g->columns, PANEL), pairs = ceildiv(g->k, 2);
	int64_t block = task % g->row_blocks, part = task / g->row_blocks % g->column_blocks;
	int64_t group = task / g->row_blocks / g->column_blocks;
	int64_t r0 = rows * block / g->row_blocks, r1 = rows * (block + 1) / g->row_blocks;
	int64_t p0 = panels * part / g->column_blocks, p1 = panels * (part + 1) / g->column_blocks;
	int64_t channel = group * g->group_columns + g->first, wide = (p1 - p0) * PANEL;
	float *sums = (float *)scratch + ROWS * LEAD, *out[ROWS];
	const float *bias = g->bias ? F(g->bias) + channel : 0;
	elem *result[ROWS], *copied = (elem *)scratch;
	struct pixel start = pixel_at(&g->grid, r0);
	struct place places[ROWS];
	locate(&g->grid, start, r1 - r0, group * g->window_step, places);
	result_rows(g, start, r1 - r0, channel, result);
	for (int64_t i = 0; i < r1 - r0; i++) out[i] = sums + i * wide;
	// a row that is read where it is begins with a whole pair and ends with one
	int there = in_place(&g->grid) && g->grid.pixel % 2 == 0 && g->grid.depth % 2 == 0;
	int64_t lead = there ? g->grid.pixel / 2 : LEAD;
	struct fetches ahead = {.other = image_fetch(&g->grid, places, r1 - r0, (p1 - p0) * pairs)};
	for (int64_t k0 = 0; k0 == 0 || k0 < pairs; k0 += DEPTH) {
		int64_t depth = least(pairs - k0, DEPTH), end = least(2 * (k0 + depth), g->k);
		const float *a = (const float *)copied, *const *base = k0 > 0 ? (const float *const *)out : 0;
		if (there)
			a = (const float *)address(&g->grid, places, 0) + k0;
		else {
			gather(&g->grid, places, r1 - r0, 2 * k0, end, copied, 2 * LEAD);
			for (int64_t i = 0; end % 2 && i < r1 - r0; i++) copied[i * 2 * LEAD + end - 2 * k0] = 0;
		}
		WRITTEN();
		ahead.other.hop = depth * ahead.other.pace;
		for (int64_t panel = p0; panel < p1; panel++) {
			int64_t columns = least(g->columns - panel * PANEL, PANEL), width = panel_width(columns), at = (panel - p0) * PANEL;
			const float *b = F(g->packed) + group * g->group_size + panel * PANEL * pairs + k0 * width;
			ahead.one = panel_fetch(b + PANEL * pairs, ceildiv(r1 - r0, STRIP), depth);
			walk(pairs_in_rows, r1 - r0, width, lead, lead, width, depth, a, b, &ahead, out, at, base, at);
			for (int64_t i = 0; k0 + DEPTH >= pairs && i < r1 - r0; i++) {
				const float *more = bias ? bias + panel * PANEL : 0;
				if (g->accumulate)
					round_sums(out[i] + at, more, 1, columns, result[i] + panel * PANEL);
				else
					round_sums(out[i] + at, more, 0, columns, result[i] + panel * PANEL);
			}
		}
	}
}

// pair_rows makes pairs of rows that are step apart: the last of an odd number is beside zeros.
static void pair_rows(const elem *src, int64_t step, int64_t rows, int64_t width, word *dst, int64_t lead) {
	for (int64_t r = 0; r < rows; r += 2, dst += lead) {
		const elem *restrict a = src + r * step, *restrict b = a + step;
		word *restrict out = dst;
		if (r + 1 < rows)
			for (int64_t i = 0; i < width; i++) out[i] = (word)a[i] | (word)b[i] << 16;
		else
			for (int64_t i = 0; i < width; i++) out[i] = a[i];
	}
}

enum { GATHERED = 32 }; // windows that are gathered at a time before they are paired

// weight_gradient: a task is a block of rows (output channels) and of columns (taps and input channels) of one
// group, for one chunk of the pixels, which are paired. Scratch: word GRAD_COPIED,GRAD_LEAD_A and GRAD_COPIED,GRAD_LEAD_B.
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
	int there = in_place(&g->grid);
	word *a = (word *)scratch, *b = a + GRAD_COPIED * GRAD_LEAD_A;
	elem gathered[GATHERED * GRAD_COLS];
	float *out[GRAD_ROWS];
	for (int64_t i = r0; i < r1; i++)
		out[i - r0] = F(g->part) + ((chunk * g->groups + group) * g->out + i) * g->columns + c0;
	const float *const *base = g->accumulate ? (const float *const *)out : 0;
	struct place places[2 * GRAD_COPIED];
	while (p0 < p1) {
		int64_t depth = ceildiv(p1 - p0, ceildiv(p1 - p0, 2 * GRAD_COPIED)); // about equal parts, in whole pairs
		depth = least(depth + depth % 2, p1 - p0);
		locate(&g->grid, pixel_at(&g->grid, p0), depth, group * g->window_step, places);
		pair_rows(E(g->dy) + p0 * step + group * g->out + r0, step, depth, r1 - r0, a, GRAD_LEAD_A);
		for (int64_t q = 0; q < depth; q += GATHERED) {
			int64_t n = least(depth - q, GATHERED), from = GRAD_COLS;
			const elem *x = gathered;
			if (there)
				x = address(&g->grid, places + q, 0) + c0, from = g->grid.pixel;
			else
				gather(&g->grid, places + q, n, c0, c1, gathered, GRAD_COLS);
			pair_rows(x, from, n, c1 - c0, b + q / 2 * GRAD_LEAD_B, GRAD_LEAD_B);
		}
		WRITTEN();
		const float *left = (const float *)a, *right = (const float *)b;
		struct fetches ahead = {.one = {left, left, 0, 0}, .other = {left, left, 0, 0}};
		for (int64_t c = 0; c < c1 - c0; c += PANEL)
			walk(pairs_by_depth, r1 - r0, least(c1 - c0 - c, PANEL), 1, GRAD_LEAD_A, GRAD_LEAD_B, ceildiv(depth, 2), left, right + c,
				&ahead, out, c, base, c);
		base = (const float *const *)out;
		p0 += depth;
	}
}
