// Operations: the pieces of work that ran, for the checks of their accesses.
#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "clock.h"

namespace emulator {

// Operation is one task that ran.
struct Operation {
    std::string what; // "kernel add on stream 2"
    int party = -1;
    ClockPtr clock; // what it stands behind, itself included

    // Reports whether this one stands behind the other.
    bool behind(const Operation &other) const { return clock->at(other.party) >= other.clock->at(other.party); }
};

// Operations numbers them from 1 and keeps them all, so that a number can be turned into a name at any time.
class Operations {
public:
    uint32_t add(Operation operation);
    const Operation &at(uint32_t number) const { return chunks_[number / each].load()[number % each]; }

private:
    static constexpr uint32_t each = 4096, most = 1 << 16;
    std::mutex mutex_;
    uint32_t next_ = 1;
    std::atomic<Operation *> chunks_[most] = {};
};

Operations &operations();

} // namespace emulator
