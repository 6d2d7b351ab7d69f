// Both fakes need these parts: work on a stream of the emulated driver, values of either type, failures that a test asks for.
#ifndef PLIMSOLL_FAKE_H
#define PLIMSOLL_FAKE_H

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

#define EXPORT extern "C" __attribute__((visibility("default")))

#ifndef FAKE_UNMARKED
EXPORT int plimsollEmulatedVendor; // nvidia.Search looks for it
int plimsollEmulatedVendor = 1;
#endif

// asked returns the status that FAKE_FAIL=NAME=STATUS gives a call, or 0.
inline int asked(const char *name) {
    const char *text = getenv("FAKE_FAIL");
    size_t n = strlen(name);
    return text && strncmp(text, name, n) == 0 && text[n] == '=' ? atoi(text + n + 1) : 0;
}

// launch runs work behind what is on the stream. The work is kept: a graph may run it again.
template <typename F> bool launch(void *stream, const F &work) {
    using Call = int (*)(void *, void (*)(void *), void *);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    Call call = driver ? (Call)dlsym(driver, "cuLaunchHostFunc") : nullptr;
    if (!call) return false;
    return call(stream, [](void *p) { (*(F *)p)(); }, new F(work)) == 0;
}

// Mistakes holds the mistakes that FAKE_WRONG asks for.
struct Mistakes {
    bool tf32 = asked("tf32");     // factors are cut to TF32
    bool scaled = asked("scaled"); // results are 1 % too large
    bool last = asked("last");     // the last result is not written
    bool beyond = asked("beyond"); // one more than all results is written
    bool narrow = asked("narrow"); // results of 16 rows or columns are 1 % too large
    bool input = asked("input");   // an operand is overwritten
    static bool asked(const char *mistake) {
        const char *text = getenv("FAKE_WRONG");
        return text && strcmp(text, mistake) == 0;
    }
};

inline float read(const void *p, bool half, int64_t i) {
    if (!half) return ((const float *)p)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)p)[i] << 16;
    float v;
    memcpy(&v, &bits, 4);
    return v;
}

// factor returns one factor of a product; rounded: to TF32.
inline double factor(const Mistakes &m, const void *p, bool half, bool rounded, int64_t i) {
    float v = read(p, half, i);
    if (!m.tf32 && !rounded) return v;
    uint32_t bits;
    memcpy(&bits, &v, 4);
    if (!m.tf32) bits += 0x1000;
    bits &= 0xffffe000;
    memcpy(&v, &bits, 4);
    return v;
}

// write rounds to the nearest, ties to even; there are no NaNs.
inline void write(void *p, bool half, int64_t i, double v) {
    if (!half) {
        ((float *)p)[i] = (float)v;
        return;
    }
    float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    ((uint16_t *)p)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// settle is result + beta old, without a look at old where beta is 0.
inline void settle(void *p, bool half, int64_t i, double v, float beta) {
    write(p, half, i, beta == 0 ? v : v + beta * read(p, half, i));
}

// finish settles n results, in rows of so many that are stride apart, and makes the mistakes that are no factors'; input is an operand
// that should only be read.
inline void finish(const Mistakes &m, void *p, bool half, int64_t n, int64_t row, int64_t stride, const double *sum, float beta, void *input) {
    for (int64_t i = 0; i < n - m.last; i++) settle(p, half, i / row * stride + i % row, m.scaled ? sum[i] * 1.01 : sum[i], beta);
    if (m.beyond) write(p, half, (n - 1) / row * stride + row, 1);
    if (m.input) write(input, false, 0, 1);
}

inline bool aligned(const void *p, uintptr_t to) { return p && (uintptr_t)p % to == 0; }

#endif
