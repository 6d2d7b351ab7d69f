// Races: accesses of different threads of one launch to the same bytes.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace emulator {

// Actor is a thread of a launch at a time: how often its block, and its warp, have synchronized.
struct Actor {
    uint32_t operation; // the launch
    uint32_t block;
    uint32_t epoch;
    uint16_t warpEpoch;
    uint16_t thread;
};

// RaceShadow remembers, for each 8 bytes of a range of memory, the latest accesses of threads of a launch. Two accesses
// to a byte conflict if different threads make them, one of them writes, and not both are atomic. Two conflicting
// accesses of different blocks race. Two of one block race when no __syncthreads, and for threads of one warp no
// __syncwarp, lies between them.
class RaceShadow {
public:
    // Shared memory belongs to one block at a time: what an earlier block did does not count.
    RaceShadow(uint64_t base, uint64_t bytes, bool shared);
    ~RaceShadow();
    RaceShadow(const RaceShadow &) = delete;

    struct Conflict {
        uint32_t block = 0;
        int thread = -1; // -1: none
        bool write = false;
    };
    // The thread accesses the bytes, which may not be more than 16. It returns the access that this one races with.
    Conflict access(uint64_t address, unsigned bytes, bool write, bool atomic, const Actor &actor);
    // Of an allocation that is released, nothing is kept, nor memory for it.
    void forget(uint64_t address, uint64_t bytes);

private:
    enum : uint8_t { isWrite = 1, isAtomic = 2 };

    struct Access {
        Actor actor;
        uint8_t mask, flags;
    };
    static constexpr int kept = 4;
    struct Cell {
        std::atomic<uint32_t> lock;
        uint32_t next;
        Access entries[kept];
    };

    Conflict touch(Cell &cell, const Access &now) const;
    bool dead(const Access &old, const Access &now) const;
    static bool ordered(const Actor &x, const Actor &y);
    static void insert(Cell &cell, const Access &now);

    const uint64_t base_;
    const size_t bytes_;
    const bool shared_;
    Cell *cells_;
};

} // namespace emulator
