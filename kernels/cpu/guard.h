// The guard of a step: the norm of all gradients, clipping, and whether the updates may run. In the jobs of HALF_* gradients are bfloat16.

// guard_squares: a task is chunk elements of one gradient; its partial sum is of their squares.
static void guard_squares(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct guard_args *g = &job->args.guard;
	int64_t from = task * g->chunk, to = least(from + g->chunk, g->n);
	const elem *restrict grad = E(g->grad);
	double sum[8] = {0};
	int64_t i = from;
	for (; i + 8 <= to; i += 8)
		for (int j = 0; j < 8; j++) sum[j] += (double)of(grad[i + j]) * of(grad[i + j]);
	for (; i < to; i++) sum[0] += (double)of(grad[i]) * of(grad[i]);
	D(g->partials)[task] = ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

// guard_verdict: one task.
static void guard_verdict(const struct job *job, int64_t task, char *scratch) {
	(void)task, (void)scratch;
	const struct guard_args *g = &job->args.guard;
	struct step s = step_of(g->scalars);
	double squares = 0;
	for (int64_t i = 0; i < g->parts; i++) squares += D(g->partials)[i];
	double norm = sqrt(squares) * s.scale;
	F(g->norm)[0] = (float)norm;
	if (!isfinite(norm)) s.skip = 1;
	if (g->max_norm > 0 && norm > g->max_norm) s.scale *= (float)(g->max_norm / (norm + 1e-6));
	memcpy((void *)(uintptr_t)g->scalars, &s, sizeof s);
}
