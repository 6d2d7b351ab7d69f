#include "order.h"

#include <sys/mman.h>

#include <new>

#include "findings.h"
#include "operations.h"

namespace emulator {

OrderShadow::OrderShadow(const Space &space) : space_(space) {
    void *p = mmap(nullptr, space.size() / granule * sizeof(Cell), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    cells_ = static_cast<Cell *>(p);
}

// The bits of the bytes [from, to) of a granule.
static uint64_t bits(uint64_t from, uint64_t to) { return (~uint64_t{0} >> (64 - (to - from))) << from; }

void OrderShadow::access(uint64_t address, uint64_t bytes, bool write, uint32_t operation) {
    for (const uint64_t end = address + bytes; address < end;) {
        const uint64_t first = address / granule * granule, stop = end < first + granule ? end : first + granule;
        touch(cell(address), first, bits(address - first, stop - first), write, operation);
        address = stop;
    }
}

void OrderShadow::touch(Cell &cell, uint64_t first, uint64_t mask, bool write, uint32_t operation) {
    // Most accesses repeat what the operation did here before. Another thread may change an entry meanwhile; what it
    // changes for this operation only grows.
    for (const Access &e : cell.entries)
        if (e.operation == operation && (e.write || !write) && (mask & ~e.mask) == 0) return;
    while (cell.lock.exchange(1, std::memory_order_acquire)) {}
    for (Access &e : cell.entries) {
        if ((e.mask & mask) == 0) continue;
        const bool own = e.operation == operation;
        if (!own && (e.write || write)) compare(e, first, e.mask & mask, write, operation);
        const bool behind = own || operations().at(operation).behind(operations().at(e.operation));
        if (write || (!e.write && behind && !own)) e.mask &= ~mask;
        if (e.mask == 0) e.operation = 0;
    }
    insert(cell, mask, write, operation);
    cell.lock.store(0, std::memory_order_release);
}

void OrderShadow::insert(Cell &cell, uint64_t mask, bool write, uint32_t operation) {
    Access *room = nullptr;
    for (Access &e : cell.entries) {
        if (e.operation == operation && e.write == static_cast<uint32_t>(write)) {
            e.mask |= mask;
            return;
        }
        if (e.operation == 0) room = &e;
    }
    if (!room) room = &cell.entries[cell.next++ % 3];
    *room = {operation, write, mask};
}

void OrderShadow::compare(const Access &old, uint64_t first, uint64_t mask, bool write, uint32_t operation) const {
    const Operation &now = operations().at(operation), &then = operations().at(old.operation);
    if (now.behind(then)) return;
    const uint64_t address = first + __builtin_ctzll(mask);
    findings().addOnce(Finding::order, now.what + then.what, now.what + (write ? " writes " : " reads ") + space_.describe(address) + ", which " +
                                       then.what + (old.write ? " writes" : " reads") +
                                       ": no event puts one behind the other");
}

void OrderShadow::forget(uint64_t address, uint64_t bytes) {
    const Cell *first = &cell(address), *end = &cell(address + bytes - 1) + 1;
    Space::clear(reinterpret_cast<uint64_t>(first), static_cast<uint64_t>(end - first) * sizeof(Cell));
}

} // namespace emulator
