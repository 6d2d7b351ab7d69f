// This file is the language of the kernels, for the host's C++ compiler. A .cu file of ours may use it when it is compiled for the emulated
// GPU. build.sh includes this file before each of them. It is no CUDA and stands for no GPU: a block's threads are fibers that run one
// after the other and change places only where they wait for each other.
//
// Everything that waits names its line, so that a report can say where threads wait.

#ifndef PLIMSOLL_EMULATOR_DEVICE_H
#define PLIMSOLL_EMULATOR_DEVICE_H

#ifndef PLIMSOLL_EMULATED
#define PLIMSOLL_EMULATED 1
#endif

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <initializer_list>

// Vector types, with CUDA's sizes and alignments.
#define PLIMSOLL_VECTORS(T, base, align2, align4)                                                                      \
    struct alignas(align2) base##2 { T x, y; };                                                                        \
    struct base##3 { T x, y, z; };                                                                                     \
    struct alignas(align4) base##4 { T x, y, z, w; };                                                                  \
    static inline base##2 make_##base##2(T x, T y) { return base##2{x, y}; }                                           \
    static inline base##3 make_##base##3(T x, T y, T z) { return base##3{x, y, z}; }                                   \
    static inline base##4 make_##base##4(T x, T y, T z, T w) { return base##4{x, y, z, w}; }

PLIMSOLL_VECTORS(unsigned char, uchar, 2, 4)
PLIMSOLL_VECTORS(short, short, 4, 8)
PLIMSOLL_VECTORS(unsigned short, ushort, 4, 8)
PLIMSOLL_VECTORS(int, int, 8, 16)
PLIMSOLL_VECTORS(unsigned, uint, 8, 16)
PLIMSOLL_VECTORS(float, float, 8, 16)
PLIMSOLL_VECTORS(double, double, 16, 16)
PLIMSOLL_VECTORS(long long, longlong, 16, 16)
PLIMSOLL_VECTORS(unsigned long long, ulonglong, 16, 16)
#undef PLIMSOLL_VECTORS

struct dim3 {
    unsigned x, y, z;
};

// PlimsollHere says where the running thread is. The emulator sets it whenever it changes threads.
struct PlimsollHere {
    uint3 thread, block;
    dim3 threads, blocks;
    void *shared; // the block's dynamic shared memory
};
extern __thread PlimsollHere plimsollHere;

#define threadIdx (plimsollHere.thread)
#define blockIdx (plimsollHere.block)
#define blockDim (plimsollHere.threads)
#define gridDim (plimsollHere.blocks)
#define warpSize 32

// Qualifiers. A block stays on one thread of the host, so what is shared by a block is local to that thread.
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __constant__ static
#define __shared__ static __thread
#define __launch_bounds__(...)
#define DYNAMIC_SHARED(type, name) type *const name = static_cast<type *>(plimsollHere.shared)

// KERNEL(name, struct name_args) { ... } defines a kernel with the parameter a, and registers it under its name.
// KERNEL_BOUNDS adds the greatest number of threads of a block (the number of blocks is advice to a real GPU).
#define KERNEL(name, args) KERNEL_BOUNDS(name, args, 1024, 1)
#define KERNEL_BOUNDS(name, args, threads, blocks)                                                                     \
    static void name(const args a);                                                                                    \
    static const PlimsollKernel plimsollKernel_##name(                                                                 \
        #name, __FILE__, sizeof(args), threads, [](const void *a) { name(*static_cast<const args *>(a)); });           \
    static void name(const args a)

// PlimsollKernel registers a kernel when the library is loaded.
struct PlimsollKernel {
    PlimsollKernel(const char *name, const char *file, size_t argument, unsigned threads, void (*run)(const void *));
};

// Where threads wait for each other.
extern "C" {
void plimsollSyncThreads(const char *file, int line);
void plimsollSyncWarp(unsigned mask, const char *file, int line);
// Gives the bits of value to the warp and returns those of lane `source`.
uint64_t plimsollShuffle(unsigned mask, uint64_t value, int source, const char *file, int line);
unsigned plimsollBallot(unsigned mask, int predicate, const char *file, int line);
int plimsollLane(void);
void plimsollTrap(const char *file, int line);
}

#define __syncthreads() plimsollSyncThreads(__FILE__, __LINE__)
#define PLIMSOLL_FIRST(first, ...) first
#define __syncwarp(...) plimsollSyncWarp(PLIMSOLL_FIRST(__VA_ARGS__ __VA_OPT__(, ) 0xffffffffu), __FILE__, __LINE__)
#define __ballot_sync(mask, predicate) plimsollBallot(mask, (predicate) != 0, __FILE__, __LINE__)
#define __any_sync(mask, predicate) (plimsollBallot(mask, (predicate) != 0, __FILE__, __LINE__) != 0)
#define __all_sync(mask, predicate) (plimsollBallot(mask, (predicate) == 0, __FILE__, __LINE__) == 0)
#define __trap() plimsollTrap(__FILE__, __LINE__)

enum class PlimsollMove { index, up, down, bits };

// The lane that a shuffle reads, within its group of `width` lanes; the own one where that would leave the group.
static inline int plimsollSource(PlimsollMove move, int by, int width) {
    const int lane = plimsollLane(), first = lane & ~(width - 1), last = first + width - 1;
    int source = lane;
    switch (move) {
    case PlimsollMove::index: return first + (by & (width - 1));
    case PlimsollMove::up: source = lane - by; break;
    case PlimsollMove::down: source = lane + by; break;
    case PlimsollMove::bits: source = lane ^ by; break;
    }
    return source < first || source > last ? lane : source;
}

template <class T>
static inline T plimsollShuffled(unsigned mask, T value, PlimsollMove move, int by, int width, const char *file,
                                 int line) {
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = plimsollShuffle(mask, bits, plimsollSource(move, by, width), file, line);
    memcpy(&value, &bits, sizeof value);
    return value;
}

#define PLIMSOLL_SHUFFLE(move, mask, value, by, ...)                                                                   \
    plimsollShuffled(mask, value, PlimsollMove::move, by, PLIMSOLL_FIRST(__VA_ARGS__ __VA_OPT__(, ) 32), __FILE__,     \
                     __LINE__)
#define __shfl_sync(mask, value, ...) PLIMSOLL_SHUFFLE(index, mask, value, __VA_ARGS__)
#define __shfl_up_sync(mask, value, ...) PLIMSOLL_SHUFFLE(up, mask, value, __VA_ARGS__)
#define __shfl_down_sync(mask, value, ...) PLIMSOLL_SHUFFLE(down, mask, value, __VA_ARGS__)
#define __shfl_xor_sync(mask, value, ...) PLIMSOLL_SHUFFLE(bits, mask, value, __VA_ARGS__)

// INSTRUCTION(text, outputs, inputs, clobbers...) is inline PTX; outputs and inputs are lists in parentheses of
// OPERAND(constraint, variable). It is the text that is executed, by a model of the instruction (see src/instruction.cc),
// so that registers in the wrong place compute here what they do on a GPU.
struct PlimsollOperand {
    const char *constraint;
    void *at;
};
struct PlimsollInstruction {
    explicit PlimsollInstruction(const char *text);
    void run(std::initializer_list<PlimsollOperand> outputs, std::initializer_list<PlimsollOperand> inputs,
             const char *file, int line) const;
    const void *const parsed;
};
#define PLIMSOLL_LIST(...) {__VA_ARGS__}
#define OPERAND(constraint, x)                                                                                         \
    PlimsollOperand { constraint, const_cast<void *>(static_cast<const volatile void *>(&(x))) }
#define INSTRUCTION(text, outputs, inputs, ...)                                                                        \
    do {                                                                                                               \
        static const PlimsollInstruction instruction(text);                                                            \
        instruction.run(PLIMSOLL_LIST outputs, PLIMSOLL_LIST inputs, __FILE__, __LINE__);                              \
    } while (0)

// An address of dynamic shared memory as instructions take it. That memory begins behind a kernel's static one, at a multiple of 16.
#define PLIMSOLL_SHARED_BEGIN 1040
static inline size_t __cvta_generic_to_shared(const void *p) {
    return static_cast<size_t>(static_cast<const char *>(p) - static_cast<const char *>(plimsollHere.shared)) + PLIMSOLL_SHARED_BEGIN;
}

// Atomics: real ones, as blocks of a launch and streams run at the same time.
template <class T> static inline T plimsollBits(const void *p) {
    T value;
    memcpy(&value, p, sizeof value);
    return value;
}

// Replaces *p by change(*p) and returns the old value. Word is an integer of T's size.
template <class Word, class T, class F> static inline T plimsollUpdate(T *p, F change) {
    Word *word = reinterpret_cast<Word *>(p);
    Word was = __atomic_load_n(word, __ATOMIC_RELAXED);
    for (;;) {
        const T old = plimsollBits<T>(&was), now = change(old);
        if (__atomic_compare_exchange_n(word, &was, plimsollBits<Word>(&now), false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED))
            return old;
    }
}

static inline int atomicAdd(int *p, int v) { return __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL); }
static inline unsigned atomicAdd(unsigned *p, unsigned v) { return __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL); }
static inline unsigned long long atomicAdd(unsigned long long *p, unsigned long long v) {
    return __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL);
}
static inline float atomicAdd(float *p, float v) {
    return plimsollUpdate<uint32_t>(p, [=](float old) { return old + v; });
}
static inline double atomicAdd(double *p, double v) {
    return plimsollUpdate<uint64_t>(p, [=](double old) { return old + v; });
}
static inline int atomicMax(int *p, int v) {
    return plimsollUpdate<uint32_t>(p, [=](int old) { return old > v ? old : v; });
}
static inline unsigned atomicMax(unsigned *p, unsigned v) {
    return plimsollUpdate<uint32_t>(p, [=](unsigned old) { return old > v ? old : v; });
}
static inline int atomicMin(int *p, int v) {
    return plimsollUpdate<uint32_t>(p, [=](int old) { return old < v ? old : v; });
}
static inline unsigned atomicMin(unsigned *p, unsigned v) {
    return plimsollUpdate<uint32_t>(p, [=](unsigned old) { return old < v ? old : v; });
}
static inline int atomicExch(int *p, int v) { return __atomic_exchange_n(p, v, __ATOMIC_ACQ_REL); }
static inline unsigned atomicExch(unsigned *p, unsigned v) { return __atomic_exchange_n(p, v, __ATOMIC_ACQ_REL); }
template <class T> static inline T plimsollCompareAndSwap(T *p, T expect, T v) {
    __atomic_compare_exchange_n(p, &expect, v, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    return expect;
}
static inline int atomicCAS(int *p, int expect, int v) { return plimsollCompareAndSwap(p, expect, v); }
static inline unsigned atomicCAS(unsigned *p, unsigned expect, unsigned v) {
    return plimsollCompareAndSwap(p, expect, v);
}
static inline unsigned long long atomicCAS(unsigned long long *p, unsigned long long expect, unsigned long long v) {
    return plimsollCompareAndSwap(p, expect, v);
}

// Arithmetic. glibc declares functions of these names with two underscores, so these are macros.
#define __expf(x) expf(x)
#define __logf(x) logf(x)
#define __powf(x, y) powf(x, y)
#define __fmaf_rn(x, y, z) __builtin_fmaf(x, y, z)
#define __fadd_rn(x, y) ((x) + (y))
#define __fsub_rn(x, y) ((x) - (y))
#define __fmul_rn(x, y) ((x) * (y))
#define __fdiv_rn(x, y) ((x) / (y))
#define __fdividef(x, y) plimsollDivide(x, y)
#define __frcp_rn(x) (1.0f / (x))
#define __fsqrt_rn(x) sqrtf(x)
#define rsqrtf(x) (1.0f / sqrtf(x))

// plimsollDivide is 0 for divisors from 2^126 on, as the hardware's fast division is.
static inline float plimsollDivide(float x, float y) { return fabsf(y) > 8.507059e37f && !isinf(x) ? copysignf(0, x) * copysignf(1, y) : x / y; }

template <class T> static inline T __ldg(const T *p) { return *p; }
static inline float __int_as_float(int x) { return plimsollBits<float>(&x); }
static inline float __uint_as_float(unsigned x) { return plimsollBits<float>(&x); }
static inline int __float_as_int(float x) { return plimsollBits<int>(&x); }
static inline unsigned __float_as_uint(float x) { return plimsollBits<unsigned>(&x); }
static inline int __float2int_rn(float x) { return static_cast<int>(lrintf(x)); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
static inline unsigned __umulhi(unsigned x, unsigned y) {
    return static_cast<unsigned>((static_cast<uint64_t>(x) * y) >> 32);
}

#define PLIMSOLL_MIN_MAX(T)                                                                                            \
    static inline T min(T x, T y) { return y < x ? y : x; }                                                            \
    static inline T max(T x, T y) { return x < y ? y : x; }
PLIMSOLL_MIN_MAX(int)
PLIMSOLL_MIN_MAX(unsigned)
PLIMSOLL_MIN_MAX(long long)
PLIMSOLL_MIN_MAX(unsigned long long)
#undef PLIMSOLL_MIN_MAX
static inline float min(float x, float y) { return fminf(x, y); }
static inline float max(float x, float y) { return fmaxf(x, y); }

#endif
