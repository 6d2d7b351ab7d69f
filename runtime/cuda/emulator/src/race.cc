#include "race.h"

#include <sys/mman.h>

#include <new>

#include "block.h"
#include "space.h"

namespace emulator {

RaceShadow::RaceShadow(uint64_t base, uint64_t bytes, bool shared)
    : base_(base / 8 * 8), bytes_((bytes / 8 + 2) * sizeof(Cell)), shared_(shared) {
    void *p = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    cells_ = static_cast<Cell *>(p);
}

RaceShadow::~RaceShadow() { munmap(cells_, bytes_); }

RaceShadow::Conflict RaceShadow::access(uint64_t address, unsigned bytes, bool write, bool atomic,
                                        const Actor &actor) {
    Conflict conflict;
    for (const uint64_t end = address + bytes; address < end;) {
        const uint64_t first = address / 8 * 8, stop = end < first + 8 ? end : first + 8;
        const uint8_t mask = static_cast<uint8_t>((0xffu >> (8 - (stop - address))) << (address - first));
        const uint8_t flags = static_cast<uint8_t>((write ? isWrite : 0) | (atomic ? isAtomic : 0));
        const Conflict here = touch(cells_[(first - base_) / 8], {actor, mask, flags});
        if (here.thread >= 0) conflict = here;
        address = stop;
    }
    return conflict;
}

void RaceShadow::forget(uint64_t address, uint64_t bytes) {
    const Cell *first = &cells_[(address - base_) / 8], *end = &cells_[(address + bytes - 1 - base_) / 8] + 1;
    Space::clear(reinterpret_cast<uint64_t>(first), static_cast<uint64_t>(end - first) * sizeof(Cell));
}

// An access of another launch, or of another block to the same shared memory, is a matter of the past.
bool RaceShadow::dead(const Access &old, const Access &now) const {
    return old.actor.operation != now.actor.operation || (shared_ && old.actor.block != now.actor.block);
}

bool RaceShadow::ordered(const Actor &x, const Actor &y) {
    if (x.block != y.block) return false;
    if (x.thread == y.thread || x.epoch != y.epoch) return true;
    return x.thread / warpLanes == y.thread / warpLanes && x.warpEpoch != y.warpEpoch;
}

RaceShadow::Conflict RaceShadow::touch(Cell &cell, const Access &now) const {
    Conflict conflict;
    while (cell.lock.exchange(1, std::memory_order_acquire)) {}
    for (Access &e : cell.entries) {
        if (e.mask == 0) continue;
        if (dead(e, now)) {
            e.mask = 0;
            continue;
        }
        if ((e.mask & now.mask) == 0) continue;
        const bool harmless = (e.flags & now.flags & isAtomic) || !((e.flags | now.flags) & isWrite);
        const bool behind = ordered(e.actor, now.actor);
        if (!harmless && !behind) conflict = {e.actor.block, e.actor.thread, (e.flags & isWrite) != 0};
        if ((now.flags & isWrite) || (behind && !(e.flags & isWrite))) e.mask &= static_cast<uint8_t>(~now.mask);
    }
    insert(cell, now);
    cell.lock.store(0, std::memory_order_release);
    return conflict;
}

void RaceShadow::insert(Cell &cell, const Access &now) {
    for (Access &e : cell.entries) {
        if (e.mask != 0) continue;
        e = now;
        return;
    }
    cell.entries[cell.next++ % kept] = now;
}

} // namespace emulator
