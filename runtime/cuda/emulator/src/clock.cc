#include "clock.h"

#include <algorithm>

namespace emulator {

namespace {

// The numbers to give out again, with the last time of each. Guarded by the driver's mutex, like all of this.
struct Numbers {
    std::vector<std::pair<int, uint32_t>> free;
    int next = 0;
};

Numbers &numbers() {
    static Numbers n;
    return n;
}

} // namespace

void Clock::set(int party, uint32_t time) {
    if (times_.size() <= static_cast<size_t>(party)) times_.resize(party + 1);
    times_[party] = time;
}

void Clock::join(const Clock &other) {
    if (times_.size() < other.times_.size()) times_.resize(other.times_.size());
    for (size_t i = 0; i < other.times_.size(); i++) times_[i] = std::max(times_[i], other.times_[i]);
}

Party::Party() {
    Numbers &n = numbers();
    if (n.free.empty()) {
        id_ = n.next++;
        return;
    }
    id_ = n.free.back().first;
    clock_.set(id_, n.free.back().second);
    n.free.pop_back();
}

Party::~Party() { numbers().free.push_back({id_, clock_.at(id_)}); }

ClockPtr Party::advance() {
    clock_.set(id_, clock_.at(id_) + 1);
    return std::make_shared<Clock>(clock_);
}

} // namespace emulator
