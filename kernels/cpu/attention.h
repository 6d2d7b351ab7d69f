// Self-attention by blocks (Dao: FlashAttention-2, 2023): ATT_ROWS queries meet ATT_KEYS keys at a time, so that scores stay in the
// second-level cache. Blocks are the same on every path. Weights that the mask hides are left out by parts of ATT_PART rows and are exactly
// zero elsewhere. So sums of finite values have the same bits on all paths.

enum { ATT_PART = 2 * STRIP };      // shorter parts leave out more of a block on the diagonal

// att_lead is the floats from row to row of a block of queries, keys or values: whole registers, and a gap.
INLINE int64_t att_lead(int64_t dim) { return ceildiv(dim, 16) * 16 + GAP; }

enum { ROWS_AHEAD = 8 }; // rows of an operand lie far apart, so each is fetched so many rows before its turn

// fetch_row fetches dim values.
INLINE void fetch_row(const elem *row, int64_t dim) {
	for (int64_t i = 0; i < dim; i += CACHE_LINE * 4 / (int64_t)sizeof(elem)) __builtin_prefetch(row + i);
}

// load_rows copies rows of dim values, step apart, times a factor, with zeros behind.
static void load_rows(const elem *restrict src, int64_t step, int64_t rows, int64_t dim, float factor, float *restrict dst) {
	int64_t lead = att_lead(dim);
	for (int64_t r = 0; r < rows; r++, src += step, dst += lead) {
		fetch_row(src + ROWS_AHEAD * step, dim);
		for (int64_t i = 0; i < dim; i++) dst[i] = of(src[i]) * factor;
		for (int64_t i = dim; i < lead - GAP; i++) dst[i] = 0;
	}
}

// load_columns packs rows of dim values, step apart, as columns: dst[i*ATT_LEAD + r].
static void load_columns(const elem *src, int64_t step, int64_t rows, int64_t dim, float *dst) {
#if HALF
	for (int64_t r0 = 0; r0 < rows; r0 += LANES)
		for (int64_t i0 = 0; i0 < dim; i0 += LANES) {
			int64_t height = least(rows - r0, LANES), width = least(dim - i0, LANES);
			float block[LANES * LANES], turned[LANES * LANES];
			memset(block, 0, sizeof block);
			for (int64_t r = 0; r < height; r++)
				for (int64_t i = 0; i < width; i++) block[r * LANES + i] = of(src[(r0 + r) * step + i0 + i]);
			transpose(block, LANES, turned, LANES);
			for (int64_t i = 0; i < width; i++) memcpy(dst + (i0 + i) * ATT_LEAD + r0, turned + i * LANES, (size_t)height * 4);
		}
#else
	pack_columns(src, step, dim, rows, ATT_LEAD, dst);
#endif
}

// pair is a block of queries and a block of keys: query q0+r sees key k0+j when k0+j <= q0+r, or always where the mask is open.
struct pair { int64_t q0, rows, k0, keys, dim, open; };

// seen is how many of the keys row r sees.
INLINE int64_t seen(const struct pair *p, int64_t r) { return p->open ? p->keys : most(least(p->keys, p->q0 + r - p->k0 + 1), 0); }

// sees is the first row that sees key j.
INLINE int64_t sees(const struct pair *p, int64_t j) { return p->open ? 0 : least(most(p->k0 + j - p->q0, 0), p->rows); }

// scores: out = a * b where the mask is open, a being rows of att_lead, b columns of keys.
static void scores(const struct pair *p, const float *a, const float *b, float *const *out) {
	int64_t lead = att_lead(p->dim);
	for (int64_t c = 0; c < p->keys; c += PANEL) {
		int64_t r = sees(p, c);
		if (r < p->rows)
			strips(in_rows, p->rows - r, least(p->keys - c, PANEL), lead, lead, ATT_LEAD, p->dim, a + r * lead, b + c, b + c, out + r, c, 0, 0);
	}
}

// entry_of is where the table has the term of a head at positions t and s, the nearest row of a wrong index.
INLINE int64_t entry_of(const struct attention_args *a, int64_t head, int64_t t, int64_t s) {
	float row = F(a->index)[t * a->length + s];
	return (row > 0 ? (int64_t)(row < a->table - 1 ? row : a->table - 1) : 0) * a->heads + head;
}

// add_terms adds what the table and the mask have for the scores of head of sample n.
static void add_terms(const struct attention_args *a, const struct pair *p, int64_t n, int64_t head, float *s) {
	const float *bias = a->bias ? F(a->bias) : 0, *mask = 0;
	if (a->mask) mask = F(a->mask) + (a->mask_heads ? n % a->masks * a->heads + head : n % a->masks) * a->length * a->length;
	for (int64_t r = 0; (bias || mask) && r < p->rows; r++, s += ATT_LEAD) {
		int64_t open = seen(p, r), t = p->q0 + r;
		for (int64_t j = 0; bias && j < open; j++) s[j] += bias[entry_of(a, head, t, p->k0 + j)];
		for (int64_t j = 0; mask && j < open; j++) s[j] += mask[t * a->length + p->k0 + j];
	}
}

// over_keys: out (+)= weights * b, where b has a row for each key.
static void over_keys(const struct pair *p, const float *weights, const float *b, int64_t columns, float *const *out, int add) {
	int64_t lead = att_lead(p->dim);
	for (int64_t r = 0; r < p->rows; r += ATT_PART) {
		int64_t rows = least(p->rows - r, ATT_PART), depth = seen(p, r + rows - 1);
		for (int64_t c = 0; depth > 0 && c < columns; c += PANEL)
			strips(in_rows, rows, least(columns - c, PANEL), ATT_LEAD, ATT_LEAD, lead, depth, weights + r * ATT_LEAD, b + c, b + c, out + r, c,
				add ? (const float *const *)out + r : 0, c);
	}
}

// over_queries: out += weights^T * b, where b has a row for each query and out one for each key.
static void over_queries(const struct pair *p, const float *weights, const float *b, float *const *out) {
	int64_t lead = att_lead(p->dim), columns = lead - GAP;
	for (int64_t j = 0; j < p->keys; j += ATT_PART) {
		int64_t keys = least(p->keys - j, ATT_PART), r = sees(p, j);
		for (int64_t c = 0; r < p->rows && c < columns; c += PANEL)
			strips(by_depth, keys, least(columns - c, PANEL), 1, ATT_LEAD, lead, p->rows - r, weights + r * ATT_LEAD + j, b + r * lead + c,
				b + r * lead + c, out + j, c, (const float *const *)out + j, c);
	}
}

static void row_pointers(float *first, int64_t step, int64_t rows, float **out) {
	for (int64_t r = 0; r < rows; r++) out[r] = first + r * step;
}

enum { REGS = LINES / LANES, SIDE = 4 }; // registers of LINES values, and rows that are weighed side by side

// below has all bits set in lanes whose number is less than n.
INLINE words below(int64_t n) {
	typedef int32_t numbers __attribute__((vector_size(LANES * 4)));
	numbers lane;
	UNROLL for (int i = 0; i < LANES; i++) lane[i] = i;
	return (words)(lane < (int32_t)n);
}

// highest is the largest of n values, or the one given.
INLINE float highest(const float *x, int64_t n, float given) {
	reg max[REGS];
	int64_t i = 0;
	UNROLL for (int j = 0; j < REGS; j++) max[j] = splat(given);
	for (; i + LINES <= n; i += LINES)
		UNROLL for (int j = 0; j < REGS; j++) max[j] = larger(*(const vec *)(x + i + j * LANES), max[j]);
	UNROLL for (int j = 0; j < REGS; j++, i += LANES) max[j] = larger(chosen(below(n - i), *(const vec *)(x + i), splat(-INFINITY)), max[j]);
	float lines[LINES];
	memcpy(lines, max, sizeof lines);
	UNROLL for (int apart = LINES / 2; apart > 0; apart /= 2)
		INDEPENDENT for (int j = 0; j < apart; j++) lines[j] = lines[j] > lines[j + apart] ? lines[j] : lines[j + apart];
	return lines[0];
}

// By default GCC moves a value to the place of its only use (TER): chains written side by side would come one after the other.
#if !defined(__clang__) && PATH < 2
#pragma GCC push_options
#pragma GCC optimize("no-tree-ter")
#endif

// exponentials is exponential of count registers, with the same bits. Below -87 it takes that of -88, which is 0. A chain of sums is long, so
// several run side by side.
INLINE void exponentials(reg *x, const int count) {
	static const float taylor[] = {1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1, 1};
	const float magic = 12582912;
	reg n[SIDE * REGS], p[SIDE * REGS];
	UNROLL for (int j = 0; j < count; j++) x[j] = chosen((words)(x[j] < -87), splat(-88), x[j]);
	UNROLL for (int j = 0; j < count; j++) n[j] = x[j] * 1.44269504f + magic;
	UNROLL for (int j = 0; j < count; j++) p[j] = n[j] - magic;
	UNROLL for (int j = 0; j < count; j++) n[j] = (reg)(((words)n[j] - 0x4B400000u + 127) << 23);
	UNROLL for (int j = 0; j < count; j++) x[j] = (x[j] - p[j] * 0.693359375f) + p[j] * 2.12194440e-4f;
	UNROLL for (int j = 0; j < count; j++) p[j] = splat(taylor[0]);
	UNROLL for (int k = 1; k < 8; k++)
		UNROLL for (int j = 0; j < count; j++) p[j] = p[j] * x[j] + taylor[k];
	UNROLL for (int j = 0; j < count; j++) x[j] = p[j] * n[j];
}

// exponentiate turns LINES scores of each row into e^(score - off).
INLINE void exponentiate(float *s, const float *off, const int rows) {
	reg x[SIDE * REGS];
	UNROLL for (int j = 0; j < rows * REGS; j++) x[j] = *(const vec *)(s + j / REGS * ATT_LEAD + j % REGS * LANES) - off[j / REGS];
	exponentials(x, rows * REGS);
	UNROLL for (int j = 0; j < rows * REGS; j++) *(vec *)(s + j / REGS * ATT_LEAD + j % REGS * LANES) = x[j];
}

// hide makes zeros of a row's values behind the first `open`, up to keys and whole LINES.
INLINE void hide(float *x, int64_t open, int64_t keys) {
	int64_t i = open / LINES * LINES;
	UNROLL for (int j = 0; j < REGS; j++, i += LANES) *(vec *)(x + i) = chosen(below(open - i), *(const vec *)(x + i), splat(0));
	for (; i < keys; i += LANES) *(vec *)(x + i) = splat(0);
}

// weigh makes weights of scores: those that a row sees become e^(score - off), the others zeros. Rows are weighed side by side, as a short
// one alone would not fill the processor.
static void weigh(const struct pair *p, float *s, const float *off) {
	int64_t r = 0;
	for (; r + SIDE <= p->rows; r += SIDE)
		for (int64_t i = 0, open = seen(p, r + SIDE - 1); i < open; i += LINES) exponentiate(s + r * ATT_LEAD + i, off + r, SIDE);
	for (; r < p->rows; r++)
		for (int64_t i = 0, open = seen(p, r); i < open; i += LINES) exponentiate(s + r * ATT_LEAD + i, off + r, 1);
	for (r = 0; r < p->rows; r++) hide(s + r * ATT_LEAD, seen(p, r), p->keys);
}

#if !defined(__clang__) && PATH < 2
#pragma GCC pop_options
#endif

// total is the sum of the first n values and the zeros behind them, up to whole LINES.
INLINE float total(const float *x, int64_t n) {
	reg sum[REGS];
	UNROLL for (int j = 0; j < REGS; j++) sum[j] = splat(0);
	for (int64_t i = 0; i < n; i += LINES)
		UNROLL for (int j = 0; j < REGS; j++) sum[j] += *(const vec *)(x + i + j * LANES);
	return folded(sum);
}

// online updates the largest score and the sum of each row with one more block of scores, and scales the output summed up before. The
// scores become weights.
static void online(const struct pair *p, float *s, float *max, float *sum, float *o) {
	int64_t width = att_lead(p->dim) - GAP;
	float factor[ATT_ROWS];
	for (int64_t r = 0; r < p->rows; r++) {
		float before = p->k0 ? max[r] : -INFINITY;
		max[r] = highest(s + r * ATT_LEAD, seen(p, r), before);
		factor[r] = before - max[r];
	}
	INDEPENDENT
	for (int64_t r = 0; r < p->rows; r++) factor[r] = exponential(factor[r]);
	weigh(p, s, max);
	for (int64_t r = 0; r < p->rows; r++, s += ATT_LEAD, o += width + GAP) {
		sum[r] = (p->k0 ? sum[r] * factor[r] : 0) + total(s, seen(p, r));
		for (int64_t i = 0; p->k0 && factor[r] != 1 && i < width; i += LANES) *(vec *)(o + i) *= factor[r];
	}
}

// attention_forward: a task is a block of queries of one head. Scratch: see attentionScratch in attention.go.
static void attention_forward(const struct job *job, int64_t task, char *scratch) {
	const struct attention_args *a = &job->args.attention;
	int64_t blocks = ceildiv(a->length, ATT_ROWS), dim = a->dim, lead = att_lead(dim);
	int64_t head = task / blocks % a->heads, n = task / blocks / a->heads, shared = head / (a->heads / a->kv);
	struct pair p = {.q0 = task % blocks * ATT_ROWS, .dim = dim, .open = a->bidirectional};
	p.rows = least(ATT_ROWS, a->length - p.q0);
	int64_t reach = p.open ? a->length : p.q0 + p.rows;
	float *q = (float *)scratch, *v = q + ATT_ROWS * lead, *o = v + ATT_KEYS * lead, *s = o + ATT_ROWS * lead, *k = s + ATT_ROWS * ATT_LEAD;
	float max[ATT_ROWS], sum[ATT_ROWS], *srow[ATT_ROWS], *orow[ATT_ROWS];
	row_pointers(s, ATT_LEAD, ATT_ROWS, srow);
	row_pointers(o, lead, ATT_ROWS, orow);
	const elem *x = E(a->x) + n * a->length * a->channels, *keys = x + (a->heads + shared) * dim, *values = keys + a->kv * dim;
	load_rows(x + p.q0 * a->channels + head * dim, a->channels, p.rows, dim, a->scale, q);
	for (; p.k0 < reach; p.k0 += ATT_KEYS) {
		p.keys = least(ATT_KEYS, reach - p.k0);
		load_columns(keys + p.k0 * a->channels, a->channels, p.keys, dim, k);
		load_rows(values + p.k0 * a->channels, a->channels, p.keys, dim, 1, v);
		scores(&p, q, k, srow);
		add_terms(a, &p, n, head, s);
		online(&p, s, max, sum, o);
		over_keys(&p, s, v, lead - GAP, orow, p.k0 > 0);
	}
	for (int64_t r = 0; r < p.rows; r++) {
		elem *y = E(a->y) + ((n * a->length + p.q0 + r) * a->heads + head) * dim;
		for (int64_t i = 0; i < dim; i++) y[i] = to(o[r * lead + i] / sum[r]);
		if (a->rows) F(a->rows)[(n * a->heads + head) * a->length + p.q0 + r] = (float)(max[r] + log((double)sum[r]));
	}
}

// gradients_of_scores: weights from the scores in s, and in ds, which has dy*v, weights*(dy*v - dy*y).
static void gradients_of_scores(const struct pair *p, float *s, float *ds, const float *rows, const float *dy, const elem *y, int64_t step) {
	int64_t lead = att_lead(p->dim);
	weigh(p, s, rows);
	for (int64_t r = 0; r < p->rows; r++, s += ATT_LEAD, ds += ATT_LEAD) {
		int64_t open = seen(p, r);
		float mean;
		const elem *out = y + r * step;
		const float *g = dy + r * lead;
		fetch_row(out + ROWS_AHEAD * step, p->dim);
		FOLD(mean, p->dim, g[i] * of(out[i]));
		for (int64_t j = 0; j < open; j += LANES) *(vec *)(ds + j) = *(const vec *)(s + j) * (*(const vec *)(ds + j) - mean);
		hide(ds, open, p->keys);
	}
}

// deposit_rows copies or adds rows of dim values, lead apart, to rows that are step apart.
static void deposit_rows(const float *restrict src, int64_t lead, int64_t rows, int64_t dim, elem *restrict dst, int64_t step, int64_t add) {
	for (int64_t r = 0; r < rows; r++, src += lead, dst += step) {
		fetch_row(dst + ROWS_AHEAD * step, dim);
		for (int64_t i = 0; i < dim; i++) dst[i] = to(add ? of(dst[i]) + src[i] : src[i]);
	}
}

// attention_backward: a task is one head of keys and values with the heads of queries that share it. Blocks of keys come
// outermost; gradients of queries gather in dx, those of keys and values in scratch (see attentionScratch). Of bfloat16 those of queries
// do so, too: float group,length,dim behind the rest.
static void attention_backward(const struct job *job, int64_t task, char *scratch) {
	const struct attention_args *a = &job->args.attention;
	int64_t dim = a->dim, lead = att_lead(dim), group = a->heads / a->kv, shared = task % a->kv, n = task / a->kv, step = a->channels;
	float *q = (float *)scratch, *dy = q + ATT_ROWS * lead, *k = dy + ATT_ROWS * lead, *dk = k + ATT_KEYS * lead, *dv = dk + ATT_KEYS * lead;
	float *s = dv + ATT_KEYS * lead, *ds = s + ATT_ROWS * ATT_LEAD, *kt = ds + ATT_ROWS * ATT_LEAD, *vt = kt + dim * ATT_LEAD, *dq = vt + dim * ATT_LEAD;
	float *srow[ATT_ROWS], *dsrow[ATT_ROWS], *dkrow[ATT_KEYS], *dvrow[ATT_KEYS], *dqrow[ATT_ROWS];
	row_pointers(s, ATT_LEAD, ATT_ROWS, srow);
	row_pointers(ds, ATT_LEAD, ATT_ROWS, dsrow);
	row_pointers(dk, lead, ATT_KEYS, dkrow);
	row_pointers(dv, lead, ATT_KEYS, dvrow);
	const elem *x = E(a->x) + n * a->length * step, *keys = x + (a->heads + shared) * dim, *values = keys + a->kv * dim;
	elem *dx = E(a->dx) + n * a->length * step, *dkeys = dx + (a->heads + shared) * dim, *dvalues = dkeys + a->kv * dim;
	for (int64_t k0 = 0; k0 < a->length; k0 += ATT_KEYS) {
		struct pair p = {.k0 = k0, .keys = least(ATT_KEYS, a->length - k0), .dim = dim, .open = a->bidirectional};
		load_columns(keys + k0 * step, step, p.keys, dim, kt);
		load_columns(values + k0 * step, step, p.keys, dim, vt);
		load_rows(keys + k0 * step, step, p.keys, dim, a->scale, k);
		memset(dk, 0, (size_t)(p.keys * lead) * 4);
		memset(dv, 0, (size_t)(p.keys * lead) * 4);
		for (int64_t head = shared * group; head < (shared + 1) * group; head++)
			for (p.q0 = p.open ? 0 : k0 / ATT_ROWS * ATT_ROWS; p.q0 < a->length; p.q0 += ATT_ROWS) {
				p.rows = least(ATT_ROWS, a->length - p.q0);
				int64_t at = ((n * a->length + p.q0) * a->heads + head) * dim;
				load_rows(x + p.q0 * step + head * dim, step, p.rows, dim, a->scale, q);
				load_rows(E(a->dy) + at, a->heads * dim, p.rows, dim, 1, dy);
				scores(&p, q, kt, srow);
				scores(&p, dy, vt, dsrow);
				add_terms(a, &p, n, head, s);
				gradients_of_scores(&p, s, ds, F(a->rows) + (n * a->heads + head) * a->length + p.q0, dy, E(a->y) + at, a->heads * dim);
				over_queries(&p, s, dy, dvrow);
				over_queries(&p, ds, q, dkrow);
#if HALF
				row_pointers(dq + ((head - shared * group) * a->length + p.q0) * dim, dim, p.rows, dqrow);
				over_keys(&p, ds, k, dim, dqrow, k0 > 0);
#else
				(void)dq;
				row_pointers(dx + p.q0 * step + head * dim, step, p.rows, dqrow);
				over_keys(&p, ds, k, dim, dqrow, k0 > 0 || a->accumulate);
#endif
			}
		deposit_rows(dk, lead, p.keys, dim, dkeys + k0 * step, step, a->accumulate);
		deposit_rows(dv, lead, p.keys, dim, dvalues + k0 * step, step, a->accumulate);
	}
	for (int64_t head = 0; HALF && head < group; head++)
		deposit_rows(dq + head * a->length * dim, dim, a->length, dim, dx + (shared * group + head) * dim, step, a->accumulate);
}

// attention_bias: a task is a head, and its column of the table's gradient. An entry's gradient is the sum of the gradients of all scores
// that the entry was added to. It is summed in float64, by samples, blocks of keys, blocks of queries. Scratch: the column, then as
// addAttentionGradients in attention.go says.
static void attention_bias(const struct job *job, int64_t head, char *scratch) {
	const struct attention_args *a = &job->args.attention;
	int64_t dim = a->dim, lead = att_lead(dim), shared = head / (a->heads / a->kv), step = a->channels;
	double *column = (double *)scratch;
	float *q = (float *)(column + a->table), *dy = q + ATT_ROWS * lead, *s = dy + ATT_ROWS * lead, *ds = s + ATT_ROWS * ATT_LEAD;
	float *kt = ds + ATT_ROWS * ATT_LEAD, *vt = kt + dim * ATT_LEAD, *srow[ATT_ROWS], *dsrow[ATT_ROWS];
	row_pointers(s, ATT_LEAD, ATT_ROWS, srow);
	row_pointers(ds, ATT_LEAD, ATT_ROWS, dsrow);
	memset(column, 0, (size_t)a->table * 8);
	for (int64_t n = 0; n < a->samples; n++) {
		const elem *x = E(a->x) + n * a->length * step, *keys = x + (a->heads + shared) * dim, *values = keys + a->kv * dim;
		for (int64_t k0 = 0; k0 < a->length; k0 += ATT_KEYS) {
			struct pair p = {.k0 = k0, .keys = least(ATT_KEYS, a->length - k0), .dim = dim, .open = a->bidirectional};
			load_columns(keys + k0 * step, step, p.keys, dim, kt);
			load_columns(values + k0 * step, step, p.keys, dim, vt);
			for (p.q0 = p.open ? 0 : k0 / ATT_ROWS * ATT_ROWS; p.q0 < a->length; p.q0 += ATT_ROWS) {
				p.rows = least(ATT_ROWS, a->length - p.q0);
				int64_t at = ((n * a->length + p.q0) * a->heads + head) * dim;
				load_rows(x + p.q0 * step + head * dim, step, p.rows, dim, a->scale, q);
				load_rows(E(a->dy) + at, a->heads * dim, p.rows, dim, 1, dy);
				scores(&p, q, kt, srow);
				scores(&p, dy, vt, dsrow);
				add_terms(a, &p, n, head, s);
				gradients_of_scores(&p, s, ds, F(a->rows) + (n * a->heads + head) * a->length + p.q0, dy, E(a->y) + at, a->heads * dim);
				for (int64_t r = 0; r < p.rows; r++)
					for (int64_t j = 0; j < seen(&p, r); j++) column[entry_of(a, head, p.q0 + r, k0 + j) / a->heads] += ds[r * ATT_LEAD + j];
			}
		}
	}
	for (int64_t row = 0; row < a->table; row++) {
		float *to = F(a->dbias) + row * a->heads + head;
		*to = (float)((a->accumulate ? *to : 0) + column[row]);
	}
}
