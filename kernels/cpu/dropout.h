// Dropout with Philox4x32-10; kernels.DropoutStream is its definition.

enum { BLOCKS = 16 }; // counters that are run through the generator side by side

// philox writes the 4*BLOCKS words of counters (low, high), (low+1, high), ...
INLINE void philox(uint64_t low, uint64_t high, uint64_t key, uint32_t words[4][BLOCKS]) {
	uint32_t *a = words[0], *b = words[1], *c = words[2], *d = words[3];
	uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
	for (int i = 0; i < BLOCKS; i++) {
		a[i] = (uint32_t)(low + (uint64_t)i);
		b[i] = (uint32_t)((low + (uint64_t)i) >> 32);
		c[i] = (uint32_t)high;
		d[i] = (uint32_t)(high >> 32);
	}
	for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)
		for (int i = 0; i < BLOCKS; i++) {
			uint64_t p = (uint64_t)0xD2511F53u * a[i], q = (uint64_t)0xCD9E8D57u * c[i];
			a[i] = (uint32_t)(q >> 32) ^ b[i] ^ k0;
			b[i] = (uint32_t)q;
			c[i] = (uint32_t)(p >> 32) ^ d[i] ^ k1;
			d[i] = (uint32_t)p;
		}
}

struct stream { uint64_t high, key; };

// stream_of derives the stream of a call from the step's scalars and the call's salt.
static struct stream stream_of(const struct dropout_args *d) {
	uint64_t scalars[3]; // seed, step, microbatch
	memcpy(scalars, (const void *)(uintptr_t)d->scalars, sizeof scalars);
	uint32_t w[4][BLOCKS];
	philox(scalars[1], scalars[2], scalars[0], w);
	uint64_t key = w[0][0] | (uint64_t)w[1][0] << 32, high = w[2][0] | (uint64_t)w[3][0] << 32;
	philox(d->salt, high, key, w);
	return (struct stream){.high = w[2][0] | (uint64_t)w[3][0] << 32, .key = w[0][0] | (uint64_t)w[1][0] << 32};
}

// drop handles n elements that one run of philox has words for.
INLINE void drop(const elem *in, elem *out, int64_t n, const uint32_t *word, uint32_t threshold, float scale, const int accumulate) {
	INDEPENDENT
	for (int64_t i = 0; i < n; i++) {
		float v = word[i] >= threshold ? of(in[i]) * scale : 0;
		out[i] = to(accumulate ? of(out[i]) + v : v);
	}
}

// dropout: a task is chunk elements, a multiple of 4*BLOCKS. out (+)= in*scale where the word reaches the threshold, else 0.
static void dropout(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct dropout_args *d = &job->args.dropout;
	struct stream s = stream_of(d);
	int64_t from = task * d->chunk, to = least(from + d->chunk, d->n);
	for (int64_t i = from; i < to; i += 4 * BLOCKS) {
		uint32_t words[4][BLOCKS], ordered[4 * BLOCKS];
		philox((uint64_t)i / 4, s.high, s.key, words);
		for (int64_t k = 0; k < 4 * BLOCKS; k++) ordered[k] = words[k % 4][k / 4];
		const elem *in = E(d->in) + i;
		elem *out = E(d->out) + i;
		if (d->accumulate)
			drop(in, out, least(to - i, 4 * BLOCKS), ordered, d->threshold, d->scale, 1);
		else
			drop(in, out, least(to - i, 4 * BLOCKS), ordered, d->threshold, d->scale, 0);
	}
}
