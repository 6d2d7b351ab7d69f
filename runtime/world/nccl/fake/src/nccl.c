// A libnccl.so.2 for tests: messages and sums between processes over sockets, on streams of the emulated driver. It has the part of NCCL
// that Plimsoll uses, with the semantics that NVIDIA documents for communicators made with blocking=0. Messages go between two ranks, sums
// over any number of them. A group of calls is launched together at its end. The library checks its arguments: lines that begin with
// "fake NCCL:" on stderr are mistakes of the caller. Ranks that add up other numbers at one time are an asynchronous error.
//
// Rank 0 makes the sums. Each part of the numbers begins with another rank, as on a ring. All ranks get the same bits, and other bits than
// from a sum in the order of ranks.
//
// PLIMSOLL_NCCL_FAKE asks for a fault.
//   * version=N    The library says that this is its version.
//   * init         No communicator is ever ready.
//   * duplicate    The library says that both ranks are on one GPU.
//   * async=N      The N-th launch on each communicator, a message or a group of sums, ends with an asynchronous error; 0 is the first one.
//   * lost=N       The N-th message over each communicator is not sent, or no other rank has a part in the N-th sums.
//   * swapped=N    The N-th message comes after the next one.
//   * flipped=N    A bit of the N-th message is another, or a bit of the sums that the last rank gets.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
#ifndef FAKE_VERSION
#define FAKE_VERSION 23203
#endif

typedef enum { success, cuda_error, system_error, internal_error, invalid_argument, invalid_usage, remote_error, in_progress } result;
enum { alive = 0x6e63636c, dead = 0x64656164, magic = (int)0xcafebeef };
typedef struct { char bytes[128]; } unique_id;
typedef struct { size_t size; unsigned magic, version; int blocking, cluster, least, most; const char *network; int share; } config;

enum { most_parts = 256 };

typedef struct { char *p; const char *from; size_t n; } part; // bytes

// op is a launch: one message, or the sums of a group.
typedef struct op {
    struct comm *comm;
    int sums; // how many; 0: it is a message
    part *parts;
    void *stream, *context;
    uint64_t turn;
    struct op *next;
} op;

// link leads to another rank: rank 0 has one to each, the others have one to rank 0.
typedef struct {
    int sockets[2]; // messages; and bytes that say that the first one is given ('b'), and the good end ('e')
    int began, told;
} link_to;

typedef struct comm {
    int magic, rank, ranks, ready, stopping, finalizing, began, told;
    link_to *links;
    int count; // of links
    char id[sizeof(unique_id)];
    result state;
    char text[256];
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    pthread_t worker;
    op *first, **last;             // given to the communicator, not yet to streams
    op *grouped;                   // of the group that is open
    struct comm *next_grouped;
    uint64_t given, done;          // ops: of one communicator they run in their order
    uint64_t running;              // host functions that have not ended
    char *held;                    // a message that comes later
    size_t held_bytes;
} comm;

static __thread char last_text[256];
static __thread int group_depth;
static __thread result group_result;
static __thread comm *group_comms;
static int (*launch)(void *, void (*)(void *), void *), (*get_context)(void **), (*set_context)(void *);

static void find_driver(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return;
    *(void **)&launch = dlsym(driver, "cuLaunchHostFunc");
    *(void **)&get_context = dlsym(driver, "cuCtxGetCurrent");
    *(void **)&set_context = dlsym(driver, "cuCtxSetCurrent");
}

// fault returns the number that a fault has, 0 where it has none, -1 when it is not asked for.
static long fault(const char *name) {
    const char *text = getenv("PLIMSOLL_NCCL_FAKE");
    size_t n = strlen(name);
    if (!text || strncmp(text, name, n) || (text[n] && text[n] != '=')) return -1;
    return text[n] ? atol(text + n + 1) : 0;
}

static result mistake(result r, const char *what) {
    fprintf(stderr, "fake NCCL: %s\n", what);
    snprintf(last_text, sizeof last_text, "%s", what);
    return r;
}

static void fail(comm *c, result r, const char *text) { // with the mutex
    if (c->state == success || c->state == in_progress) {
        c->state = r;
        snprintf(c->text, sizeof c->text, "%s", text);
    }
    pthread_cond_broadcast(&c->changed);
}

static void nap(long us) {
    struct timespec t = {0, us * 1000};
    nanosleep(&t, NULL);
}

// transfer moves bytes, and gives up when the communicator is aborted. 0: moved; 1: given up; -1: the other end is gone.
static int transfer(comm *c, link_to *l, int sends, void *p, size_t n) {
    char *at = p;
    while (n) {
        if (__atomic_load_n(&c->stopping, __ATOMIC_ACQUIRE)) return 1;
        struct pollfd f = {l->sockets[0], sends ? POLLOUT : POLLIN, 0};
        if (poll(&f, 1, 5) <= 0) continue;
        ssize_t k = sends ? send(f.fd, at, n, MSG_DONTWAIT | MSG_NOSIGNAL) : recv(f.fd, at, n, MSG_DONTWAIT);
        if (k < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (k <= 0) return -1;
        at += k, n -= (size_t)k;
    }
    return 0;
}

static void hang(comm *c) { // a kernel that waits for what does not come ends when it is aborted
    while (!__atomic_load_n(&c->stopping, __ATOMIC_ACQUIRE)) nap(500);
}

static int write_message(comm *c, char *p, size_t n) {
    uint64_t header = n;
    int r = transfer(c, c->links, 1, &header, sizeof header);
    return r ? r : transfer(c, c->links, 1, p, n);
}

static int send_message(comm *c, op *o) {
    part *m = o->parts;
    if ((long)o->turn == fault("lost")) return 0;
    if ((long)o->turn == fault("swapped")) {
        memcpy(c->held = malloc(m->n), m->p, c->held_bytes = m->n);
        return 0;
    }
    char *copy = NULL;
    if ((long)o->turn == fault("flipped")) {
        memcpy(copy = malloc(m->n), m->p, m->n);
        copy[m->n / 2] ^= 4;
    }
    int r = write_message(c, copy ? copy : m->p, m->n);
    free(copy);
    if (!r && c->held) {
        r = write_message(c, c->held, c->held_bytes);
        free(c->held);
        c->held = NULL;
    }
    return r;
}

static int receive_message(comm *c, op *o) {
    part *m = o->parts;
    uint64_t n = 0;
    int r = transfer(c, c->links, 0, &n, sizeof n);
    if (r) return r;
    if (n != m->n) { // the kernels wait for what does not come
        hang(c);
        return 1;
    }
    return transfer(c, c->links, 0, m->p, m->n);
}

// sum describes a sum to other ranks. It must be the same on all of them.
typedef struct { uint64_t turn, sums, index, bytes; } sum;

// gather_sum makes a sum at rank 0, and gives it to all.
static int gather_sum(comm *c, part *m, const sum *own) {
    size_t numbers = m->n / sizeof(float);
    const float **all = calloc((size_t)c->ranks, sizeof *all);
    float *total = malloc(m->n + sizeof(float));
    all[0] = (const float *)m->from;
    int r = 0;
    for (int i = 0; i < c->count && !r; i++) {
        sum theirs;
        if ((r = transfer(c, &c->links[i], 0, &theirs, sizeof theirs))) break;
        if (memcmp(&theirs, own, sizeof theirs)) { // NCCL waits for ever, or adds up something
            r = -3;
            break;
        }
        float *p = malloc(m->n + sizeof(float));
        all[i + 1] = p;
        r = transfer(c, &c->links[i], 0, p, m->n);
    }
    for (size_t k = 0; k < numbers && !r; k++) {
        int first = (int)(k * (size_t)c->ranks / numbers) + 1;
        float x = all[first % c->ranks][k];
        for (int i = 1; i < c->ranks; i++) x += all[(first + i) % c->ranks][k];
        total[k] = x;
    }
    for (int i = 0; i < c->count && !r; i++) r = transfer(c, &c->links[i], 1, total, m->n);
    if (!r) memcpy(m->p, total, m->n);
    for (int i = 1; i < c->ranks; i++) free((void *)all[i]);
    free(all), free(total);
    return r;
}

static int add_up(comm *c, op *o) {
    int r = 0;
    if (c->rank > 0 && (long)o->turn == fault("lost")) {
        hang(c);
        return 1;
    }
    for (int i = 0; i < o->sums && !r; i++) {
        part *m = &o->parts[i];
        sum own = {o->turn, (uint64_t)o->sums, (uint64_t)i, m->n};
        if (c->rank == 0) {
            r = gather_sum(c, m, &own);
            continue;
        }
        r = transfer(c, c->links, 1, &own, sizeof own);
        if (!r) r = transfer(c, c->links, 1, (void *)m->from, m->n);
        if (!r) r = transfer(c, c->links, 0, m->p, m->n);
        if (!r && c->rank == c->ranks - 1 && (long)o->turn == fault("flipped")) m->p[m->n / 2] ^= 4;
    }
    return r;
}

// run is an op on its stream.
static void run(void *p) {
    op *o = p;
    comm *c = o->comm;
    pthread_mutex_lock(&c->mutex);
    while (c->done != o->turn && !c->stopping) pthread_cond_wait(&c->changed, &c->mutex);
    pthread_mutex_unlock(&c->mutex);
    int r = 1;
    if (!__atomic_load_n(&c->stopping, __ATOMIC_ACQUIRE)) r = o->sums ? add_up(c, o) : c->rank == 0 ? send_message(c, o) : receive_message(c, o);
    if ((long)o->turn == fault("async")) r = -2;
    if (r < 0) {
        pthread_mutex_lock(&c->mutex);
        if (r == -1) fail(c, remote_error, "remote process exited or there was a network error");
        if (r == -2) fail(c, system_error, "a planted error of the network");
        if (r == -3) fail(c, internal_error, "ranks add up other numbers at one time");
        pthread_mutex_unlock(&c->mutex);
        hang(c);
    }
    pthread_mutex_lock(&c->mutex);
    c->done++, c->running--;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mutex);
    free(o->parts);
    free(o);
}

// meet connects both sockets of each link. Rank 0 waits for the others, which say who they are.
static int meet(comm *c) {
    struct sockaddr_un a = {AF_UNIX, {0}};
    snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "%.100s", c->id);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(c->id));
    int listener = -1;
    if (c->rank == 0) {
        listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (bind(listener, (struct sockaddr *)&a, length) || listen(listener, 2 * c->ranks)) return -1;
    }
    int got = 0;
    while (got < 2 * c->count && !__atomic_load_n(&c->stopping, __ATOMIC_ACQUIRE)) {
        nap(300);
        int s, hello[2] = {c->rank, got};
        if (c->rank == 0) {
            if ((s = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) < 0) continue;
            if (recv(s, hello, sizeof hello, MSG_WAITALL) != sizeof hello || hello[0] < 1 || hello[0] >= c->ranks || (hello[1] | 1) != 1) return -1;
            link_to *l = &c->links[hello[0] - 1];
            if (l->sockets[hello[1]] >= 0) return -1;
            l->sockets[hello[1]] = s;
        } else {
            s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
            if (connect(s, (struct sockaddr *)&a, length) || send(s, hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello) {
                close(s);
                continue;
            }
            c->links[0].sockets[got] = s;
        }
        got++;
    }
    if (listener >= 0) close(listener);
    return got == 2 * c->count ? 0 : 1;
}

// give hands the first op to its stream, a moment after the call that made it.
static void give(comm *c) { // with the mutex
    op *o = c->first;
    if (!(c->first = o->next)) c->last = &c->first;
    pthread_mutex_unlock(&c->mutex);
    nap(100);
    set_context(o->context);
    int failed = launch(o->stream, run, o);
    pthread_mutex_lock(&c->mutex);
    if (failed) {
        c->running--;
        fail(c, cuda_error, "the launch failed");
    }
}

// all_began and all_told report what all ranks at the other ends have said.
static int all_began(const comm *c) {
    for (int i = 0; i < c->count; i++)
        if (!c->links[i].began) return 0;
    return 1;
}

static int all_told(const comm *c) {
    for (int i = 0; i < c->count; i++)
        if (!c->links[i].told) return 0;
    return 1;
}

// tell says something to the ranks at the other ends.
static int tell(comm *c, const char *what) {
    for (int i = 0; i < c->count; i++)
        if (send(c->links[i].sockets[1], what, 1, MSG_NOSIGNAL) != 1) return 0;
    return 1;
}

// settle says when what was begun is done. NCCL connects ranks with their first launch, so that one is when all have given it.
static void settle(comm *c) { // with the mutex
    if (c->state == in_progress && !c->first && (c->finalizing ? c->told && all_told(c) : c->began && all_began(c))) c->state = success;
}

// hear looks at the second sockets. Rank 0 passes on what all have said.
static void hear(comm *c) { // with the mutex
    for (int i = 0; i < c->count; i++) {
        char byte;
        link_to *l = &c->links[i];
        ssize_t k = recv(l->sockets[1], &byte, 1, MSG_DONTWAIT);
        if (k == 1) *(byte == 'b' ? &l->began : &l->told) = 1;
        if (k == 0 && !l->told) fail(c, remote_error, "remote process exited or there was a network error");
    }
    if (c->given && !c->began && (c->rank > 0 || all_began(c))) c->began = tell(c, "b");
    if (c->finalizing && !c->told && !c->running && (c->rank > 0 || all_told(c))) c->told = tell(c, "e");
}

static void *work(void *p) {
    comm *c = p;
    nap(3000);
    if (fault("init") >= 0) hang(c);
    int met = meet(c);
    pthread_mutex_lock(&c->mutex);
    if (met < 0) fail(c, system_error, "the id was used before");
    if (met == 0 && fault("duplicate") >= 0)
        fail(c, invalid_usage, "Multiple Ranks are using the same GPU/Partition. Set NCCL_MULTI_RANK_GPU_ENABLE=1 to enable this configuration.");
    else if (met == 0 && c->state == in_progress)
        c->ready = 1, c->state = success;
    while (!c->stopping) {
        if (c->first) {
            give(c);
            settle(c);
            continue;
        }
        if (c->ready) hear(c), settle(c);
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        t.tv_nsec += 2000000;
        if (t.tv_nsec >= 1000000000) t.tv_nsec -= 1000000000, t.tv_sec++;
        pthread_cond_timedwait(&c->changed, &c->mutex, &t);
    }
    pthread_mutex_unlock(&c->mutex);
    return NULL;
}

API result ncclGetVersion(int *version) {
    long asked = fault("version");
    *version = asked > 0 ? (int)asked : FAKE_VERSION;
    return success;
}

API const char *ncclGetErrorString(result r) {
    static const char *const texts[] = {"no error", "unhandled cuda error", "unhandled system error", "internal error", "invalid argument", "invalid usage",
                                        "remote process exited or there was a network error", "NCCL operation in progress"};
    return (unsigned)r < sizeof texts / sizeof *texts ? texts[r] : "unknown result code";
}

API const char *ncclGetLastError(comm *c) { return c && *c->text ? c->text : last_text; }

API result ncclGetUniqueId(unique_id *id) {
    uint64_t random[2];
    if (getrandom(random, sizeof random, 0) != sizeof random) return system_error;
    memset(id, 0, sizeof *id);
    snprintf(id->bytes, sizeof id->bytes, "plimsoll-fake-nccl-%016lx%016lx", (unsigned long)random[0], (unsigned long)random[1]);
    return success;
}

API result ncclCommInitRankConfig(comm **to, int ranks, unique_id id, int rank, config *given) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_driver);
    *to = NULL;
    void *context = NULL;
    if (!launch || get_context(&context) || !context) return mistake(cuda_error, "no CUDA context is current");
    if (ranks < 2 || rank < 0 || rank >= ranks) return mistake(invalid_argument, "a rank that is not one of the communicator's");
    if (group_depth) return mistake(invalid_usage, "the fake makes no communicators in groups");
    if (given->size < sizeof(config) || given->magic != (unsigned)magic || given->version < 21800) return mistake(invalid_argument, "the configuration is not one");
    if (given->blocking != 0 || given->least < 1 || given->most < given->least) return mistake(invalid_argument, "the configuration is not Plimsoll's");
    if (strncmp(id.bytes, "plimsoll-fake-nccl-", 19)) return mistake(invalid_argument, "the id is not from ncclGetUniqueId");
    comm *c = calloc(1, sizeof *c);
    c->magic = alive, c->rank = rank, c->state = in_progress, c->last = &c->first, c->ranks = ranks;
    c->count = rank == 0 ? ranks - 1 : 1;
    c->links = calloc((size_t)c->count, sizeof *c->links);
    for (int i = 0; i < c->count; i++) c->links[i].sockets[0] = c->links[i].sockets[1] = -1;
    memcpy(c->id, id.bytes, sizeof c->id);
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->changed, NULL);
    pthread_create(&c->worker, NULL, work, c);
    *to = c;
    return in_progress;
}

// use locks a communicator, if it is one.
static int use(comm *c) {
    if (!c || c->magic != alive) return 0;
    pthread_mutex_lock(&c->mutex);
    return 1;
}

API result ncclCommGetAsyncError(comm *c, result *state) {
    if (!use(c)) return mistake(invalid_argument, "the state of a communicator that is none");
    *state = c->state;
    pthread_mutex_unlock(&c->mutex);
    return success;
}

// put gives an op to its communicator.
static void put(op *o) { // with the mutex
    comm *c = o->comm;
    o->turn = c->given++;
    if (get_context(&o->context) || !o->context) mistake(cuda_error, "no CUDA context is current");
    *c->last = o, c->last = &o->next;
    c->running++;
    c->state = in_progress;
    pthread_cond_broadcast(&c->changed);
}

static op *new_op(comm *c, void *stream, size_t parts) {
    op *o = calloc(1, sizeof *o);
    o->comm = c, o->stream = stream, o->parts = calloc(parts, sizeof *o->parts);
    return o;
}

static result enqueue(comm *c, int sends, void *p, size_t n, int type, int peer, void *stream) {
    if (!use(c)) return mistake(invalid_argument, "a message on a communicator that is none");
    result r = c->state;
    if (r == in_progress) r = mistake(invalid_usage, "a message before the call before it is done");
    else if (r == success && group_depth) r = mistake(invalid_usage, "the fake has no messages in groups");
    else if (r == success && c->finalizing) r = mistake(invalid_usage, "a message behind ncclCommFinalize");
    else if (r == success && c->ranks != 2) r = mistake(invalid_usage, "the fake has messages between two ranks");
    else if (r == success && (type < 0 || type > 1 || !p)) r = mistake(invalid_argument, "a message that is no bytes");
    else if (r == success && peer != 1 - c->rank) r = mistake(invalid_argument, "a message to nobody");
    else if (r == success && sends != (c->rank == 0)) r = mistake(invalid_usage, "a message against its way");
    else if (r == success && n > 0) {
        op *o = new_op(c, stream, 1);
        o->parts[0] = (part){p, p, n};
        put(o);
        r = in_progress;
    }
    pthread_mutex_unlock(&c->mutex);
    return r;
}

API result ncclSend(const void *p, size_t n, int type, int peer, comm *c, void *stream) { return enqueue(c, 1, (void *)p, n, type, peer, stream); }

API result ncclRecv(void *p, size_t n, int type, int peer, comm *c, void *stream) { return enqueue(c, 0, p, n, type, peer, stream); }

API result ncclGroupStart(void) {
    if (!group_depth++) group_result = success;
    return success;
}

// ncclGroupEnd launches, at the end of the outermost group, all that was called in it, a launch for each communicator; nothing where one of
// the calls has failed.
API result ncclGroupEnd(void) {
    if (!group_depth) return mistake(invalid_usage, "the end of a group that has not begun");
    if (--group_depth) return success;
    result r = group_result;
    while (group_comms) {
        comm *c = group_comms;
        group_comms = c->next_grouped;
        if (!use(c)) {
            r = mistake(invalid_argument, "a communicator ends in a group");
            continue;
        }
        op *o = c->grouped;
        c->grouped = NULL;
        if (group_result == success && c->state != success) group_result = r = c->state;
        if (group_result == success) {
            put(o);
            r = in_progress;
        } else {
            free(o->parts), free(o);
        }
        pthread_mutex_unlock(&c->mutex);
    }
    return r;
}

// join adds a sum to the group that is open.
static result join(comm *c, part m, void *stream) { // with the mutex
    if (!c->grouped) {
        c->grouped = new_op(c, stream, most_parts);
        c->next_grouped = group_comms, group_comms = c;
    }
    op *o = c->grouped;
    if (o->stream != stream) return mistake(invalid_usage, "the fake has one stream for a communicator in a group");
    if (o->sums == most_parts) return mistake(invalid_usage, "the fake has groups of 256 sums");
    o->parts[o->sums++] = m;
    return success;
}

API result ncclAllReduce(const void *from, void *to, size_t n, int type, int how, comm *c, void *stream) {
    ncclGroupStart();
    result r = success;
    if (!use(c)) r = mistake(invalid_argument, "a sum on a communicator that is none");
    else {
        r = c->state;
        if (r == in_progress) r = mistake(invalid_usage, "a sum before the call before it is done");
        else if (r == success && c->finalizing) r = mistake(invalid_usage, "a sum behind ncclCommFinalize");
        else if (r == success && (type != 7 || how != 0 || !from || !to)) r = mistake(invalid_argument, "the fake adds up float32 numbers");
        else if (r == success && n > 0) r = join(c, (part){to, from, n * sizeof(float)}, stream);
        pthread_mutex_unlock(&c->mutex);
    }
    if (r != success && group_result == success) group_result = r;
    result ended = ncclGroupEnd();
    return r == success ? ended : r;
}

API result ncclCommFinalize(comm *c) {
    if (!use(c)) return mistake(invalid_argument, "the end of a communicator that is none");
    result r = c->state;
    if (r == success) c->finalizing = 1, c->state = r = in_progress;
    pthread_mutex_unlock(&c->mutex);
    return r;
}

// end stops everything of a communicator. Its memory stays, so that later use of it is found.
static result end(comm *c) {
    c->magic = dead;
    __atomic_store_n(&c->stopping, 1, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mutex);
    pthread_join(c->worker, NULL);
    pthread_mutex_lock(&c->mutex);
    for (op *o = c->first; o; o = o->next) c->running--; // no stream has them
    while (c->running) pthread_cond_wait(&c->changed, &c->mutex);
    pthread_mutex_unlock(&c->mutex);
    for (int i = 0; i < 2 * c->count; i++)
        if (c->links[i / 2].sockets[i % 2] >= 0) close(c->links[i / 2].sockets[i % 2]);
    return success;
}

API result ncclCommDestroy(comm *c) {
    if (!use(c)) return mistake(invalid_argument, "a communicator is destroyed that is none");
    if (!c->finalizing || c->state != success || c->running) mistake(invalid_usage, "a communicator is destroyed that is in use");
    return end(c);
}

#ifndef FAKE_INCOMPLETE
API result ncclCommAbort(comm *c) {
    if (!use(c)) return mistake(invalid_argument, "a communicator is aborted that is none");
    return end(c);
}
#endif
