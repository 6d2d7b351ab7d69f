// Order: accesses of different streams to the same bytes.
#pragma once
#include <atomic>
#include <cstdint>

#include "space.h"

namespace emulator {

// OrderShadow remembers, for each 64 bytes of a space, the latest accesses byte by byte. Two accesses to a byte, of
// which one writes, are unordered when no event, wait of the host or order of a stream puts one behind the other. The
// clocks say that, not the time at which they happened to run: a missing event is found in every run in which both
// accesses happen, however they fall.
//
// An access is remembered until one that stands behind it replaces it. A granule remembers three of different
// operations; beyond that the oldest is forgotten, which can lose a finding and never makes one up.
class OrderShadow {
public:
    explicit OrderShadow(const Space &space);

    // The operation accesses the bytes.
    void access(uint64_t address, uint64_t bytes, bool write, uint32_t operation);
    // Of an allocation that is released, which shares no granule with another.
    void forget(uint64_t address, uint64_t bytes);

private:
    static constexpr uint64_t granule = 64;

    struct Access {
        uint32_t operation; // 0: none
        uint32_t write;
        uint64_t mask; // a bit per byte
    };
    struct Cell {
        std::atomic<uint32_t> lock;
        uint32_t next; // the entry to forget when all are in use
        Access entries[3];
    };

    Cell &cell(uint64_t address) const { return cells_[(address - space_.base()) / granule]; }
    void touch(Cell &cell, uint64_t first, uint64_t mask, bool write, uint32_t operation);
    void compare(const Access &old, uint64_t first, uint64_t mask, bool write, uint32_t operation) const;
    static void insert(Cell &cell, uint64_t mask, bool write, uint32_t operation);

    const Space &space_;
    Cell *cells_;
};

} // namespace emulator
