// Images in other frames: kernels.Pad and kernels.Resize. A task is rows_per_task rows of what is written.

// axis_at is where position i is between two pixels, and the weight of the second: kernels.Axis.At.
INLINE float axis_at(const struct axis *a, int64_t i, int64_t *low, int64_t *high) {
	float at = a->ratio * (float)i;
	if (a->shift != 0) {
		at = a->ratio * ((float)i + a->shift);
		at = at - a->shift;
		at = at > 0 ? at : 0;
	}
	*low = least((int64_t)at, a->in - 1);
	*high = a->nearest ? *low : least(*low + 1, a->in - 1);
	float weight = a->nearest ? 0 : at - (float)*low;
	return weight < 1 ? weight : 1;
}

// first_near is a position from which on all are that have a part of pixel p: none of the positions ahead has one.
INLINE int64_t first_near(const struct axis *a, int64_t p) {
	if (a->ratio <= 0) return 0;
	return most((int64_t)((float)(p - 1) / a->ratio) - 2, 0);
}

// part_of is the weight of pixel p in position i; *past: p and all ahead have none from here on.
INLINE float part_of(const struct axis *a, int64_t i, int64_t p, int *past) {
	int64_t low, high;
	float weight = axis_at(a, i, &low, &high);
	*past = low > p;
	return (low == p ? 1 - weight : 0) + (high == p ? weight : 0);
}

static void resize_forward(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct frame_args *a = &job->args.frame;
	int64_t from = task * a->rows_per_task, end = least(from + a->rows_per_task, a->n * a->rows.out), c = a->channels;
	for (int64_t row = from; row < end; row++) {
		int64_t top, bottom, left, right;
		float down = axis_at(&a->rows, row % a->rows.out, &top, &bottom);
		const elem *x = E(a->x) + row / a->rows.out * a->rows.in * a->columns.in * c;
		for (int64_t ox = 0; ox < a->columns.out; ox++) {
			float along = axis_at(&a->columns, ox, &left, &right);
			const elem *p = x + (top * a->columns.in + left) * c, *q = x + (top * a->columns.in + right) * c;
			const elem *r = x + (bottom * a->columns.in + left) * c, *s = x + (bottom * a->columns.in + right) * c;
			elem *y = E(a->y) + (row * a->columns.out + ox) * c;
			float wp = (1 - down) * (1 - along), wq = (1 - down) * along, wr = down * (1 - along), ws = down * along;
			INDEPENDENT
			for (int64_t k = 0; k < c; k++) y[k] = to(wp * of(p[k]) + wq * of(q[k]) + wr * of(r[k]) + ws * of(s[k]));
		}
	}
}

static void resize_backward(const struct job *job, int64_t task, char *scratch) {
	const struct frame_args *a = &job->args.frame;
	int64_t from = task * a->rows_per_task, end = least(from + a->rows_per_task, a->n * a->rows.in), c = a->channels;
	float *sum = (float *)scratch;
	for (int64_t row = from; row < end; row++) {
		const elem *dy = E(a->dy) + row / a->rows.in * a->rows.out * a->columns.out * c;
		int64_t y = row % a->rows.in;
		for (int64_t x = 0; x < a->columns.in; x++) {
			memset(sum, 0, (size_t)c * 4);
			int below = 0;
			for (int64_t oy = first_near(&a->rows, y); oy < a->rows.out; oy++) {
				float down = part_of(&a->rows, oy, y, &below);
				if (below) break;
				int right = 0;
				for (int64_t ox = first_near(&a->columns, x); down != 0 && ox < a->columns.out; ox++) {
					float weight = down * part_of(&a->columns, ox, x, &right);
					if (right) break;
					const elem *g = dy + (oy * a->columns.out + ox) * c;
					INDEPENDENT
					for (int64_t k = 0; k < c; k++) sum[k] += weight * of(g[k]);
				}
			}
			elem *dx = E(a->dx) + (row * a->columns.in + x) * c;
			for (int64_t k = 0; k < c; k++) dx[k] = to(a->accumulate ? of(dx[k]) + sum[k] : sum[k]);
		}
	}
}

// inside is where an extent has position i; -1: nowhere.
INLINE int64_t inside(int64_t i, int64_t extent, int64_t circular) {
	if (circular) return (i % extent + extent) % extent;
	return i >= 0 && i < extent ? i : -1;
}

static void pad_forward(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct frame_args *a = &job->args.frame;
	int64_t from = task * a->rows_per_task, end = least(from + a->rows_per_task, a->n * a->rows.out), c = a->channels;
	for (int64_t row = from; row < end; row++) {
		int64_t y = inside(row % a->rows.out - a->top, a->rows.in, a->circular);
		for (int64_t ox = 0; ox < a->columns.out; ox++) {
			int64_t x = inside(ox - a->left, a->columns.in, a->circular);
			elem *to_ = E(a->y) + (row * a->columns.out + ox) * c;
			if (y < 0 || x < 0)
				memset(to_, 0, (size_t)c * sizeof(elem));
			else
				memcpy(to_, E(a->x) + ((row / a->rows.out * a->rows.in + y) * a->columns.in + x) * c, (size_t)c * sizeof(elem));
		}
	}
}

static void pad_backward(const struct job *job, int64_t task, char *scratch) {
	const struct frame_args *a = &job->args.frame;
	int64_t from = task * a->rows_per_task, end = least(from + a->rows_per_task, a->n * a->rows.in), c = a->channels;
	float *sum = (float *)scratch;
	int64_t row_step = a->circular ? a->rows.in : a->rows.out + a->rows.in, column_step = a->circular ? a->columns.in : a->columns.out + a->columns.in;
	for (int64_t row = from; row < end; row++) {
		int64_t oy0 = row % a->rows.in + a->top;
		if (a->circular) oy0 = inside(oy0, a->rows.in, 1);
		for (int64_t x = 0; x < a->columns.in; x++) {
			int64_t ox0 = x + a->left;
			if (a->circular) ox0 = inside(ox0, a->columns.in, 1);
			memset(sum, 0, (size_t)c * 4);
			for (int64_t oy = oy0; oy >= 0 && oy < a->rows.out; oy += row_step)
				for (int64_t ox = ox0; ox >= 0 && ox < a->columns.out; ox += column_step) {
					const elem *g = E(a->dy) + ((row / a->rows.in * a->rows.out + oy) * a->columns.out + ox) * c;
					INDEPENDENT
					for (int64_t k = 0; k < c; k++) sum[k] += of(g[k]);
				}
			elem *dx = E(a->dx) + (row * a->columns.in + x) * c;
			for (int64_t k = 0; k < c; k++) dx[k] = to(a->accumulate ? of(dx[k]) + sum[k] : sum[k]);
		}
	}
}
