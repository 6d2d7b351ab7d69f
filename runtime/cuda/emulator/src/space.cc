#include "space.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "config.h"

namespace emulator {

namespace {

constexpr uint64_t page = 4096;
constexpr uint64_t granule = 512; // what an allocation counts in multiples of
constexpr size_t remembered = 4096; // released allocations

uint64_t up(uint64_t bytes, uint64_t multiple) { return (bytes + multiple - 1) / multiple * multiple; }

void *pointer(uint64_t address) { return reinterpret_cast<void *>(address); }

} // namespace

std::string Allocation::name(const std::string &space) const {
    return "allocation " + std::to_string(number) + " (" + std::to_string(bytes) + " bytes) of " + space;
}

Space::Space(std::string name, uint64_t hint, uint64_t bytes) : name_(std::move(name)), size_(bytes) {
    void *p = mmap(pointer(hint), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    base_ = reinterpret_cast<uint64_t>(p);
}

uint64_t Space::roomFor(uint64_t memory) { return std::max(up(memory, page) * 4, uint64_t{32} << 30); }

Space::~Space() { munmap(pointer(base_), size_); }

// Finds room behind the cursor, or from the beginning, with a page before it that stays unmapped.
uint64_t Space::place(uint64_t bytes) {
    for (int turn = 0; turn < 2; turn++) {
        uint64_t at = base_ + cursor_ + page;
        for (auto it = live_.lower_bound(at - page); it != live_.end(); ++it) {
            if (at + bytes + page <= it->second.address) break;
            at = up(it->second.end(), page) + page;
        }
        if (at + bytes + page <= base_ + size_) return at;
        cursor_ = 0;
    }
    return 0;
}

uint64_t Space::allocate(uint64_t bytes) {
    const std::lock_guard<std::mutex> guard(mutex_);
    const uint64_t whole = up(bytes, page), at = place(whole);
    if (at == 0 || mprotect(pointer(at), whole, PROT_READ | PROT_WRITE) != 0) return 0;
    if (config().poison) memset(pointer(at), 0xff, whole);
    cursor_ = at + whole - base_;
    used_ += up(bytes, granule);
    live_[at] = {at, bytes, count_++};
    released_.erase(at);
    return at;
}

void Space::clear(uint64_t address, uint64_t bytes) {
    const uint64_t end = address + bytes, first = std::min(up(address, page), end), last = std::max(end / page * page, first);
    memset(pointer(address), 0, first - address);
    if (last > first && madvise(pointer(first), last - first, MADV_DONTNEED) != 0) memset(pointer(first), 0, last - first);
    memset(pointer(last), 0, end - last);
}

bool Space::release(uint64_t address) {
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto it = live_.find(address);
    if (it == live_.end()) return false;
    const Allocation gone = it->second;
    live_.erase(it);
    mmap(pointer(address), up(gone.bytes, page), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
         0);
    used_ -= up(gone.bytes, granule);
    if (released_.size() >= remembered) released_.clear();
    released_[address] = gone;
    return true;
}

static const Allocation *holder(const std::map<uint64_t, Allocation> &allocations, uint64_t address) {
    auto it = allocations.upper_bound(address);
    if (it == allocations.begin()) return nullptr;
    const Allocation &a = (--it)->second;
    return address < a.end() ? &a : nullptr;
}

bool Space::find(uint64_t address, Allocation *found) const {
    const std::lock_guard<std::mutex> guard(mutex_);
    const Allocation *a = holder(live_, address);
    if (a) *found = *a;
    return a != nullptr;
}

std::string Space::describe(uint64_t address) const {
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto at = [&](const Allocation &a) {
        return "byte " + std::to_string(address - a.address) + " of " + a.name(name_);
    };
    if (const Allocation *a = holder(live_, address)) return at(*a);
    if (const Allocation *a = holder(released_, address)) return at(*a) + ", which was released";
    auto it = live_.upper_bound(address);
    if (it == live_.begin()) return "an address in front of all allocations of " + name_;
    const Allocation &a = (--it)->second;
    return std::to_string(address - a.end()) + " bytes behind the end of " + a.name(name_);
}

uint64_t Space::used() const {
    const std::lock_guard<std::mutex> guard(mutex_);
    return used_;
}

size_t Space::live() const {
    const std::lock_guard<std::mutex> guard(mutex_);
    return live_.size();
}

std::string Space::liveNames() const {
    const std::lock_guard<std::mutex> guard(mutex_);
    std::string names;
    for (const auto &[address, a] : live_) names += (names.empty() ? "" : ", ") + a.name(name_);
    return names;
}

} // namespace emulator
