// The workers of a library are whoever runs a launch, and helpers that live as long as the process. They are threads of the system and not
// goroutines, so that a launch is one call out of Go however many jobs it has. If a thread leaves and comes back for every job, a scheduler
// takes its processor away and gives it back each time. That costs more than many a job.
//
//  1. Whoever runs a job works on it until no task is left. So a job ends even when every helper is busy elsewhere: any number of threads
//     can run launches at once.
//  2. At most pool.threads workers are on one job, each with its own number below that (its scratch).
//  3. A helper touches an offer only between join and leave, which its owner waits for.
//  4. Workers compute with zeros in place of subnormal numbers, but for those of a pool that keeps them; whoever runs a launch gets the
//     mode of his thread back.
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "job.h"

// PAUSES bounds how long a worker looks for its next job, or for the end of the current one, before it sleeps. It is about 0.1 ms, more
// than lies between two launches of a step, for waking a thread takes as long as a small job.
enum { PAUSES = 2000 };

// offer is a job that somebody runs, and its state among the workers.
struct offer {
	const struct job *job;
	struct share *shares;
	int64_t workers;              // that have a share
	// Guarded by the pool's lock.
	struct offer *next;
	int64_t wanted, joined;
	int32_t running;              // helpers; read without the lock by whoever spins
	pthread_cond_t left;          // the last helper has left
};

struct pool {
	int64_t threads;
	int64_t pauses;               // 0 where workers share a core
	bool subnormals;              // are kept
	pthread_mutex_t lock;
	pthread_cond_t offered;       // a job wants helpers
	struct offer *first;          // those that do
	int32_t open;                 // 1 when there is one; written under the lock, read without by those who spin
};

static inline void pause_(void) {
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

// set_subnormals makes this thread take subnormal operands for zeros and return zeros for subnormal results, or keep both, and returns
// the mode before. Gradients that vanish are subnormal before they are zero, and one such number takes as long as a hundred others.
#if defined(__x86_64__)
typedef unsigned int float_mode;
enum { FLUSH_TO_ZERO = 0x8000, DENORMALS_ARE_ZERO = 0x40 };

static float_mode set_subnormals(bool kept) {
	float_mode before = __builtin_ia32_stmxcsr(), flushing = FLUSH_TO_ZERO | DENORMALS_ARE_ZERO;
	__builtin_ia32_ldmxcsr(kept ? before & ~flushing : before | flushing);
	return before;
}

static void restore(float_mode mode) { __builtin_ia32_ldmxcsr(mode); }
#elif defined(__aarch64__)
typedef uint64_t float_mode;

static void restore(float_mode mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode)); }

static float_mode set_subnormals(bool kept) {
	float_mode before, flushing = 1 << 24;
	__asm__ volatile("mrs %0, fpcr" : "=r"(before));
	restore(kept ? before & ~flushing : before | flushing);
	return before;
}
#else
typedef int float_mode;
static float_mode set_subnormals(bool kept) { return (void)kept, 0; }
static void restore(float_mode mode) { (void)mode; }
#endif

static void spin(const struct pool *p, const int32_t *word, int32_t wanted) {
	for (int64_t i = 0; i < p->pauses && __atomic_load_n(word, __ATOMIC_ACQUIRE) != wanted; i++) pause_();
}

// split gives each of so many workers its share of the tasks.
static void split(int64_t tasks, struct share *shares, int64_t workers) {
	for (int64_t w = 0; w < workers; w++) {
		shares[w].next = tasks * w / workers;
		shares[w].end = tasks * (w + 1) / workers;
	}
}

// work takes tasks of the worker's share, then of the others', until none is left.
static void work(const struct job *job, struct share *shares, int64_t workers, int64_t worker) {
	kernel_fn *fn = plimsoll_kernels(job->path)[job->kernel];
	char *scratch = (char *)(uintptr_t)job->scratch + worker * job->scratch_bytes;
	for (int64_t i = 0; i < workers; i++) {
		struct share *s = &shares[(worker + i) % workers];
		for (;;) {
			int64_t task = __atomic_fetch_add(&s->next, 1, __ATOMIC_RELAXED);
			if (task >= s->end) break;
			fn(job, task, scratch);
		}
	}
}

static void withdraw(struct pool *p, struct offer *o) {
	struct offer **at = &p->first;
	while (*at != o) at = &(*at)->next;
	*at = o->next;
	if (!p->first) __atomic_store_n(&p->open, 0, __ATOMIC_RELEASE);
}

// join waits for an offer and takes a place in it.
static struct offer *join(struct pool *p, int64_t *worker) {
	spin(p, &p->open, 1);
	pthread_mutex_lock(&p->lock);
	while (!p->first) pthread_cond_wait(&p->offered, &p->lock);
	struct offer *o = p->first;
	*worker = ++o->joined;
	__atomic_add_fetch(&o->running, 1, __ATOMIC_RELAXED);
	if (o->joined == o->wanted) withdraw(p, o);
	pthread_mutex_unlock(&p->lock);
	return o;
}

static void leave(struct pool *p, struct offer *o) {
	pthread_mutex_lock(&p->lock);
	if (__atomic_sub_fetch(&o->running, 1, __ATOMIC_RELEASE) == 0) pthread_cond_signal(&o->left);
	pthread_mutex_unlock(&p->lock);
}

static void *help(void *pool) {
	set_subnormals(((struct pool *)pool)->subnormals);
	for (;;) {
		int64_t worker;
		struct offer *o = join(pool, &worker);
		work(o->job, o->shares, o->workers, worker);
		leave(pool, o);
	}
	return 0;
}

static void publish(struct pool *p, struct offer *o) {
	pthread_mutex_lock(&p->lock);
	o->next = p->first;
	p->first = o;
	__atomic_store_n(&p->open, 1, __ATOMIC_RELEASE);
	for (int64_t i = 0; i < o->wanted; i++) pthread_cond_signal(&p->offered);
	pthread_mutex_unlock(&p->lock);
}

// finish takes back the offer, which has no tasks left, and waits until the helpers have left.
static void finish(struct pool *p, struct offer *o) {
	pthread_mutex_lock(&p->lock);
	if (o->joined < o->wanted) withdraw(p, o);
	pthread_mutex_unlock(&p->lock);
	spin(p, &o->running, 0);
	pthread_mutex_lock(&p->lock);
	while (o->running > 0) pthread_cond_wait(&o->left, &p->lock);
	pthread_mutex_unlock(&p->lock);
}

void plimsoll_run(struct pool *p, const struct job *jobs, int64_t count, struct share *shares) {
	struct offer o = {.shares = shares, .left = PTHREAD_COND_INITIALIZER};
	float_mode mode = set_subnormals(p->subnormals);
	for (const struct job *job = jobs; job < jobs + count; job++) {
		o.job = job, o.workers = job->tasks < p->threads ? job->tasks : p->threads;
		if (o.workers < 1) continue;
		o.wanted = o.workers - 1, o.joined = 0;
		split(job->tasks, shares, o.workers);
		if (o.wanted > 0) publish(p, &o);
		work(job, shares, o.workers, 0);
		if (o.wanted > 0) finish(p, &o);
	}
	restore(mode);
}

// start starts one helper. Signals are not for it: Go has threads of its own for them.
static int start(struct pool *p) {
	sigset_t all, before;
	pthread_t thread;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int error = pthread_create(&thread, 0, help, p);
	if (!error) pthread_detach(thread);
	pthread_sigmask(SIG_SETMASK, &before, 0);
	return error;
}

// Helpers that were started before one could not be stay: there is no way to end them that a pool in use does not pay for.
struct pool *plimsoll_pool(int64_t threads, bool spins, bool subnormals) {
	struct pool *p = calloc(1, sizeof *p);
	if (!p) return 0;
	p->threads = 1, p->pauses = spins ? PAUSES : 0, p->subnormals = subnormals;
	pthread_mutex_init(&p->lock, 0);
	pthread_cond_init(&p->offered, 0);
	for (; p->threads < threads; p->threads++)
		if (start(p)) return 0;
	return p;
}
