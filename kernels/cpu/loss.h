// Losses: softmax with cross entropy, and means over elements.

union bits { float f; uint32_t u; };

// exponential is e^x for x <= 0, to 2 units in the last place; below -87 it is 0, NaN stays NaN. Cody and Waite's reduction
// x = n*ln 2 + r, |r| <= ln(2)/2, and the Taylor polynomial of degree 7. Its own, so that every machine has the same bits.
INLINE float exponential(float x) {
	const float magic = 12582912; // 1.5 * 2^23: adding it rounds to an integer
	union bits n = {x * 1.44269504f + magic}, power;
	float whole = n.f - magic;
	float r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
	float p = 1.0f / 5040;
	p = p * r + 1.0f / 720;
	p = p * r + 1.0f / 120;
	p = p * r + 1.0f / 24;
	p = p * r + 1.0f / 6;
	p = p * r + 0.5f;
	p = p * r + 1;
	p = p * r + 1;
	power.u = (n.u - 0x4B400000u + 127) << 23;
	return x < -87 ? 0 : p * power.f;
}

enum { LOSS_CHUNK = 1024, LOSS_LINES = 16 };

// largest is the largest value, and the first place where it is: the chunk first, then the place in it.
INLINE float largest(const elem *x, int64_t n, int64_t *at) {
	float best = of(x[0]);
	*at = 0;
	for (int64_t from = 0; from < n; from += LOSS_CHUNK) {
		int64_t to = least(from + LOSS_CHUNK, n);
		float max[LOSS_LINES];
		for (int64_t j = 0; j < LOSS_LINES; j++) max[j] = best;
		for (int64_t i = from; i + LOSS_LINES <= to; i += LOSS_LINES)
			for (int64_t j = 0; j < LOSS_LINES; j++) max[j] = of(x[i + j]) > max[j] ? of(x[i + j]) : max[j];
		for (int64_t i = from + (to - from) / LOSS_LINES * LOSS_LINES; i < to; i++) max[0] = of(x[i]) > max[0] ? of(x[i]) : max[0];
		for (int64_t j = 1; j < LOSS_LINES; j++) max[0] = max[j] > max[0] ? max[j] : max[0];
		if (!(max[0] > best)) continue;
		best = max[0];
		for (*at = from; of(x[*at]) != best;) ++*at;
	}
	return best;
}

enum { IGNORED = -100 }; // kernels.Ignored

// loss_row returns the loss of one row; *hit becomes whether its prediction is right. If a row does not count, they are 0 and -1. If saved
// is not null, loss_row also writes the values that backward needs.
static double loss_row(const elem *x, int64_t classes, int32_t label, float *saved, int32_t *hit) {
	int64_t best;
	float max = largest(x, classes, &best);
	double part[LOSS_LINES] = {0}, sum = 0;
	for (int64_t c = 0; c < classes; c += LOSS_LINES) {
		float e[LOSS_LINES];
		int64_t n = least(classes - c, LOSS_LINES);
		for (int64_t j = 0; j < LOSS_LINES; j++) e[j] = j < n ? exponential(of(x[c + (j < n ? j : 0)]) - max) : 0;
		for (int64_t j = 0; j < LOSS_LINES; j++) part[j] += e[j];
	}
	for (int64_t j = 0; j < LOSS_LINES; j++) sum += part[j];
	if (saved) {
		saved[0] = max;
		saved[1] = (float)sum;
		saved[2] = (float)(sum - saved[1]);
	}
	*hit = label == IGNORED ? -1 : best == label;
	if (label == IGNORED) return 0;
	if (label < 0 || label >= classes) return NAN;
	return log(sum) - ((double)of(x[label]) - max);
}

// loss_forward: a task is rows_per_task rows.
static void loss_forward(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct loss_args *l = &job->args.loss;
	int64_t from = task * l->rows_per_task, to = least(from + l->rows_per_task, l->rows);
	for (int64_t r = from; r < to; r++)
		D(l->row_loss)[r] = loss_row(E(l->logits) + r * l->classes, l->classes, I(l->labels)[r],
			l->saved ? F(l->saved) + 3 * r : 0, I(l->row_hit) + r);
}

// loss_total: the mean of the losses of rows that count, the number of hits and that of these rows, in order; one task.
static void loss_total(const struct job *job, int64_t task, char *scratch) {
	(void)task, (void)scratch;
	const struct loss_args *l = &job->args.loss;
	double sum = 0;
	int64_t hits = 0, counted = 0;
	for (int64_t r = 0; r < l->rows; r++) {
		int32_t hit = I(l->row_hit)[r];
		sum += D(l->row_loss)[r];
		hits += hit > 0;
		counted += hit >= 0;
	}
	F(l->result)[0] = counted ? (float)(sum / (double)counted) : 0;
	F(l->result)[1] = (float)hits;
	F(l->result)[2] = (float)counted;
}

// loss_backward: a task is rows_per_task rows. The kernel computes dx (+)= (softmax - onehot(label)) / rows that count. The gradient is 0
// in a row that does not count, and NaN where the label is none. dx may lie on the logits.
static void loss_backward(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct loss_args *l = &job->args.loss;
	int64_t from = task * l->rows_per_task, end = least(from + l->rows_per_task, l->rows);
	float rows = F(l->result)[2];
	for (int64_t r = from; r < end; r++) {
		const elem *x = E(l->logits) + r * l->classes;
		const float *saved = F(l->saved) + 3 * r;
		elem *dx = E(l->dx) + r * l->classes;
		float max = saved[0];
		double sum = (double)saved[1] + saved[2];
		int32_t label = I(l->labels)[r];
		if (label == IGNORED) {
			if (!l->accumulate) memset(dx, 0, (size_t)l->classes * sizeof(elem));
			continue;
		}
		int known = label >= 0 && label < l->classes;
		float off = known ? 0 : NAN, right = known ? of(x[label]) : 0, was = known && l->accumulate ? of(dx[label]) : 0;
		int64_t classes = l->classes, accumulate = l->accumulate;
		for (int64_t c = 0; c < classes; c += LOSS_LINES) {
			float e[LOSS_LINES];
			int64_t n = least(classes - c, LOSS_LINES);
			for (int64_t j = 0; j < LOSS_LINES; j++) e[j] = j < n ? exponential(of(x[c + (j < n ? j : 0)]) - max) : 0;
			for (int64_t j = 0; j < LOSS_LINES; j++) e[j] = ((float)(e[j] / sum) - off) / rows;
			if (accumulate)
				for (int64_t j = 0; j < n; j++) dx[c + j] = to(of(dx[c + j]) + e[j]);
			else
				for (int64_t j = 0; j < n; j++) dx[c + j] = to(e[j]);
		}
		if (known) dx[label] = to(was + ((float)(exponential(right - max) / sum) - 1) / rows);
	}
}

enum { CROSS_ENTROPY, MSE, L1, BCE }; // kernels.Criterion

// criterion is the loss of an output and its target. That of BCE takes no exponential of a positive number.
INLINE double criterion(int64_t kind, float x, float t) {
	float d = x - t;
	switch (kind) {
	case MSE: return (double)d * d;
	case L1: return fabsf(d);
	}
	return (x > 0 ? x : 0) - (double)x * t + log1p(exponential(-fabsf(x)));
}

// criterion_slope is the derivative of criterion by x. That of |x - t| is 0 at 0, and NaN where that is none.
INLINE float criterion_slope(int64_t kind, float x, float t) {
	float d = x - t;
	switch (kind) {
	case MSE: return 2 * d;
	case L1: return d > 0 ? 1 : d < 0 ? -1 : d;
	}
	float e = exponential(-fabsf(x));
	return (x < 0 ? e / (1 + e) : 1 / (1 + e)) - t;
}

// element_loss_forward: a task is a chunk of elements. It writes the sum of their losses and how many are right.
static void element_loss_forward(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct element_loss_args *l = &job->args.element_loss;
	int64_t from = task * l->chunk, end = least(from + l->chunk, l->n);
	const elem *x = E(l->x);
	const float *t = F(l->targets);
	double sum = 0;
	int32_t right = 0;
	for (int64_t i = from; i < end; i++) {
		sum += criterion(l->of, of(x[i]), t[i]);
		right += l->of == BCE && (of(x[i]) > 0) == (t[i] > 0.5f);
	}
	D(l->losses)[task] = sum;
	I(l->right)[task] = right;
}

// element_loss_total: the mean of the losses, the number of right elements and that of all, in the order of the chunks; one task.
static void element_loss_total(const struct job *job, int64_t task, char *scratch) {
	(void)task, (void)scratch;
	const struct element_loss_args *l = &job->args.element_loss;
	double sum = 0;
	int64_t right = 0;
	for (int64_t i = 0; i < l->chunks; i++) sum += D(l->losses)[i], right += I(l->right)[i];
	F(l->result)[0] = (float)(sum / (double)l->n);
	F(l->result)[1] = (float)right;
	F(l->result)[2] = (float)l->n;
}

// element_loss_backward: dx (+)= the criterion's slope / the number of elements. dx may lie on x.
static void element_loss_backward(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct element_loss_args *l = &job->args.element_loss;
	int64_t from = task * l->chunk, end = least(from + l->chunk, l->n);
	const elem *x = E(l->x);
	const float *t = F(l->targets);
	elem *dx = E(l->dx);
	float n = F(l->result)[2];
	for (int64_t i = from; i < end; i++) {
		float g = criterion_slope(l->of, of(x[i]), t[i]) / n;
		dx[i] = to(l->accumulate ? of(dx[i]) + g : g);
	}
}
