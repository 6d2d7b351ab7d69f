// Vector clocks: which work is ordered behind which.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

namespace emulator {

// Clock says, for each party, up to which of its operations something is ordered behind. Parties are streams, and the
// lanes of graphs. A clock grows with the parties it has heard of.
class Clock {
public:
    uint32_t at(int party) const { return static_cast<size_t>(party) < times_.size() ? times_[party] : 0; }
    void set(int party, uint32_t time);
    void join(const Clock &other);

private:
    std::vector<uint32_t> times_;
};

using ClockPtr = std::shared_ptr<const Clock>;

// Party is one ordered queue. Its number is given back with it; a later party that gets the number goes on counting,
// so that times never repeat, and stands behind everything the earlier one did.
class Party {
public:
    Party();
    ~Party();
    Party(const Party &) = delete;
    int id() const { return id_; }
    void join(const Clock &other) { clock_.join(other); }
    const Clock &clock() const { return clock_; }
    // The next operation: its clock, in which the party's own time is the operation's.
    ClockPtr advance();

private:
    int id_;
    Clock clock_;
};

} // namespace emulator
