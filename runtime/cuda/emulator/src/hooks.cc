// The functions that code compiled with -fsanitize=thread calls. Only the kernels of the checked build are; nothing of
// ThreadSanitizer itself is linked. Each access is shown to Watch before it happens.
#include <cstddef>
#include <cstdint>

#include "block.h"
#include "watch.h"

using emulator::Block;
using emulator::Watch;

namespace {

void touch(const volatile void *p, size_t bytes, bool write, bool atomic = false) {
    if (!Block::running()) return; // a kernel's registration
    const uint64_t address = reinterpret_cast<uint64_t>(p);
    Watch::ofThisThread().access(address, static_cast<unsigned>(bytes), write, atomic);
}

// A range is shown in pieces of at most eight bytes, each aligned as far as it goes.
void touchRange(const volatile void *p, size_t bytes, bool write) {
    uint64_t address = reinterpret_cast<uint64_t>(p);
    for (const uint64_t end = address + bytes; address < end;) {
        uint64_t piece = 8;
        while (address % piece != 0 || address + piece > end) piece /= 2;
        touch(reinterpret_cast<void *>(address), piece, write);
        address += piece;
    }
}

} // namespace

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void **, void *) {}

#define PLAIN(n)                                                                                                       \
    void __tsan_read##n(void *p) { touch(p, n, false); }                                                               \
    void __tsan_write##n(void *p) { touch(p, n, true); }                                                               \
    void __tsan_unaligned_read##n(void *p) { touchRange(p, n, false); }                                                \
    void __tsan_unaligned_write##n(void *p) { touchRange(p, n, true); }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)
void __tsan_read_range(void *p, size_t bytes) { touchRange(p, bytes, false); }
void __tsan_write_range(void *p, size_t bytes) { touchRange(p, bytes, true); }

#define ATOMIC(bits, T)                                                                                                \
    T __tsan_atomic##bits##_load(const volatile T *p, int) {                                                           \
        touch(p, sizeof(T), false, true);                                                                              \
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                                   \
    }                                                                                                                  \
    void __tsan_atomic##bits##_store(volatile T *p, T v, int) {                                                        \
        touch(p, sizeof(T), true, true);                                                                               \
        __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                                      \
    }                                                                                                                  \
    T __tsan_atomic##bits##_exchange(volatile T *p, T v, int) {                                                        \
        touch(p, sizeof(T), true, true);                                                                               \
        return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                                            \
    }                                                                                                                  \
    T __tsan_atomic##bits##_fetch_add(volatile T *p, T v, int) {                                                       \
        touch(p, sizeof(T), true, true);                                                                               \
        return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);                                                             \
    }                                                                                                                  \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile T *p, T *expect, T v, int, int) {                       \
        touch(p, sizeof(T), true, true);                                                                               \
        return __atomic_compare_exchange_n(p, expect, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                   \
    }
ATOMIC(8, uint8_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)

} // extern "C"

