// Optimizers, as PyTorch defines them. Constants of a step are formed in float64 and rounded once. In the jobs of HALF_* gradients, and they
// alone, are bfloat16.

struct step { uint64_t seed, count, microbatch; float lr, scale; uint32_t skip; uint64_t update; };

INLINE struct step step_of(uint64_t scalars) {
	struct step s;
	memcpy(&s, (const void *)(uintptr_t)scalars, sizeof s);
	return s;
}

// sgd_update: a task is chunk elements.
static void sgd_update(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct update_args *u = &job->args.update;
	struct step s = step_of(u->scalars);
	if (s.skip) return;
	int64_t from = task * u->chunk, to = least(from + u->chunk, u->n);
	float *restrict param = F(u->param), *restrict velocity = F(u->state0);
	const elem *restrict grad = E(u->grad);
	float decay = (float)u->weight_decay, momentum = (float)u->momentum, fresh = (float)(1 - u->dampening);
	if (!u->state0) {
		for (int64_t i = from; i < to; i++) param[i] -= s.lr * (of(grad[i]) * s.scale + decay * param[i]);
		return;
	}
	int first = s.update + u->earlier == 0, nesterov = u->nesterov != 0;
	for (int64_t i = from; i < to; i++) {
		float g = of(grad[i]) * s.scale + decay * param[i];
		float v = first ? g : momentum * velocity[i] + fresh * g;
		velocity[i] = v;
		param[i] -= s.lr * (nesterov ? g + momentum * v : v);
	}
}

// twofold is the sum of two doubles, the second at most half a unit in the last place of the first.
struct twofold { double high, low; };

INLINE struct twofold times(struct twofold x, struct twofold y) {
	double high = x.high * y.high, low = fma(x.high, y.high, -high) + (x.high * y.low + x.low * y.high), sum = high + low;
	return (struct twofold){sum, low - (sum - high)};
}

// power is b to the power of t, computed as on a GPU: by exact operations in one order, in twice the precision of a double.
static double power(double b, uint64_t t) {
	struct twofold whole = {1, 0}, square = {b, 0};
	for (;; square = times(square, square)) {
		if (t & 1) whole = times(whole, square);
		if (!(t >>= 1)) return whole.high;
	}
}

struct adam { float scale, l2, shrink, m_fresh, beta2, v_fresh, size, root_correction, epsilon; };

// UPDATE_AHEAD is how many floats lie between what is updated and what is fetched from memory meanwhile: the processor's own guesses stop
// at the end of a page.
enum { UPDATE_AHEAD = 512 };

// gradients_at loads as many gradients as a register holds.
INLINE reg gradients_at(const elem *grad) {
#if HALF
	return (reg)(__builtin_convertvector(*(const some *)grad, words) << 16);
#else
	return *(const vec *)grad;
#endif
}

// adam_one updates as many elements as a register holds.
INLINE void adam_one(const struct adam *a, float *param, const elem *grad, float *m, float *v) {
	reg w = *(vec *)param, g = gradients_at(grad) * a->scale + w * a->l2;
	reg first = *(vec *)m, second = *(vec *)v;
	first += (g - first) * a->m_fresh;
	second = second * a->beta2 + (g * g) * a->v_fresh;
	*(vec *)m = first;
	*(vec *)v = second;
	*(vec *)param = w * a->shrink - first / (root(second) / a->root_correction + a->epsilon) * a->size;
}

// adam_update: a task is chunk elements; decoupled is AdamW. Rounding is the same for whole registers and the rest.
static void adam_update(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct update_args *u = &job->args.update;
	struct step s = step_of(u->scalars);
	if (s.skip) return;
	uint64_t t = s.update + u->earlier + 1;
	double lr = s.lr;
	struct adam a = {
		.scale = s.scale,
		.l2 = u->decoupled ? 0 : (float)u->weight_decay,
		.shrink = u->decoupled ? (float)(1 - lr * u->weight_decay) : 1,
		.m_fresh = (float)(1 - u->beta1),
		.beta2 = (float)u->beta2,
		.v_fresh = (float)(1 - u->beta2),
		.size = (float)(lr / (1 - power(u->beta1, t))),
		.root_correction = (float)sqrt(1 - power(u->beta2, t)),
		.epsilon = (float)u->epsilon,
	};
	int64_t i = task * u->chunk, to = least(i + u->chunk, u->n);
	float *param = F(u->param), *m = F(u->state0), *v = F(u->state1);
	const elem *grad = E(u->grad);
	for (; i + LANES <= to; i += LANES) {
		__builtin_prefetch(param + i + UPDATE_AHEAD, 1);
		__builtin_prefetch(grad + i + UPDATE_AHEAD, 0);
		__builtin_prefetch(m + i + UPDATE_AHEAD, 1);
		__builtin_prefetch(v + i + UPDATE_AHEAD, 1);
		adam_one(&a, param + i, grad + i, m + i, v + i);
	}
	if (i == to) return;
	float rest[3][LANES] = {{0}};
	elem last[LANES] = {0};
	size_t left = (size_t)(to - i);
	float *from[3] = {param + i, m + i, v + i};
	for (int j = 0; j < 3; j++) memcpy(rest[j], from[j], left * sizeof(float));
	memcpy(last, grad + i, left * sizeof(elem));
	adam_one(&a, rest[0], last, rest[1], rest[2]);
	for (int j = 0; j < 3; j++) memcpy(from[j], rest[j], left * sizeof(float));
}

// begin_chunk is muon_begin of one chunk; narrow: x is bfloat16.
INLINE void begin_chunk(const struct muon_args *u, int64_t from, int64_t to, const int narrow) {
	struct step s = step_of(u->scalars);
	float *restrict x = F(u->x), *restrict momentum = F(u->momentum);
	uint16_t *restrict rounded = (uint16_t *)x;
	const elem *restrict grad = E(u->grad);
	float beta = (float)u->beta, fresh = (float)(1 - u->beta);
	if (s.skip) {
		if (narrow) memset(rounded + from, 0, (size_t)(to - from) * sizeof *rounded);
		else memset(x + from, 0, (size_t)(to - from) * sizeof *x);
		return;
	}
	for (int64_t i = from; i < to; i++) {
		float g = of(grad[i]) * s.scale, v = momentum[i] + (g - momentum[i]) * fresh, moved = g + beta * (v - g);
		momentum[i] = v;
		if (narrow) rounded[i] = to_bf16(moved);
		else x[i] = moved;
	}
}

// muon_begin moves the momentum, and writes what is to be orthogonalized: nothing, of a step that is skipped. Elements are the gradient's.
static void muon_begin(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct muon_args *u = &job->args.muon;
	int64_t from = task * u->chunk, to = least(from + u->chunk, u->n);
	if (u->narrow) begin_chunk(u, from, to, 1);
	else begin_chunk(u, from, to, 0);
}

// muon_normalize divides x by its norm, from the partial sums.
static void muon_normalize(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct muon_args *u = &job->args.muon;
	double squares = 0;
	for (int64_t i = 0; i < u->parts; i++) squares += D(u->partials)[i];
	double norm = sqrt(squares);
	float factor = (float)(1 / (norm > u->tiny ? norm : u->tiny));
	int64_t from = task * u->chunk, end = least(from + u->chunk, u->n);
	elem *x = E(u->x);
	INDEPENDENT
	for (int64_t i = from; i < end; i++) x[i] = to(of(x[i]) * factor);
}

// muon_polynomial makes a + b*A + c*A*A of A*A.
static void muon_polynomial(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct muon_args *u = &job->args.muon;
	int64_t from = task * u->chunk, end = least(from + u->chunk, u->side * u->side);
	const elem *restrict square = E(u->square);
	elem *restrict again = E(u->again);
	float a = (float)u->a, b = (float)u->b, c = (float)u->c;
	for (int64_t i = from, diagonal = (from + u->side) / (u->side + 1) * (u->side + 1); i < end; i = diagonal + 1, diagonal = i + u->side) {
		for (int64_t k = i; k < least(diagonal, end); k++) again[k] = to(b * of(square[k]) + c * of(again[k]));
		if (diagonal < end) again[diagonal] = to(b * of(square[diagonal]) + c * of(again[diagonal]) + a);
	}
}

// muon_end moves the parameter by what is orthogonal.
static void muon_end(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct muon_args *u = &job->args.muon;
	struct step s = step_of(u->scalars);
	if (s.skip) return;
	double lr = s.lr;
	float shrink = (float)(1 - lr * u->weight_decay), size = (float)(lr * u->rate);
	int64_t from = task * u->chunk, to = least(from + u->chunk, u->n);
	float *restrict param = F(u->param);
	const elem *restrict x = E(u->x);
	for (int64_t i = from; i < to; i++) param[i] = param[i] * shrink - size * of(x[i]);
}
