// peak multiplies and adds in registers alone: what this path can do at most. rounds * 2 * 12 * LANES operations.
static void peak(const struct job *job, int64_t task, char *scratch) {
	(void)task, (void)scratch;
	const struct peak_args *p = &job->args.peak;
	reg acc[12], x = splat(1.0f), y = splat(1e-9f);
	UNROLL for (int i = 0; i < 12; i++) acc[i] = splat((float)i);
	for (int64_t k = 0; k < p->rounds; k++) {
		UNROLL for (int i = 0; i < 12; i++) acc[i] = fma_(acc[i], x, y);
	}
	reg sum = splat(0);
	UNROLL for (int i = 0; i < 12; i++) sum += acc[i];
	*(vec *)F(p->sink) = sum;
}

// triad is the triad of STREAM (J. McCalpin): out = a + most*b. A task is chunk elements.
static void triad(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct map_args *m = &job->args.map;
	int64_t from = task * m->chunk, end = least(from + m->chunk, m->n);
	const float *a = F(m->a), *b = F(m->b);
	float *out = F(m->out), factor = m->most;
	INDEPENDENT
	for (int64_t i = from; i < end; i++) out[i] = a[i] + factor * b[i];
}
