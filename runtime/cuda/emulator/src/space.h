// Spaces: ranges of addresses and the allocations in them.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace emulator {

// Allocation is one piece of memory. It stays known after its release, to name it in reports.
struct Allocation {
    uint64_t address = 0;
    uint64_t bytes = 0;
    uint64_t number = 0; // counts the allocations of the space
    uint64_t end() const { return address + bytes; }
    std::string name(const std::string &space) const;
};

// Space is a large range of addresses; allocations lie in it with unmapped gaps between them. An address is used
// again only when all others have been, so that what is used after its release is not somebody else's.
class Space {
public:
    // Bytes of address space are reserved near the hint. They cost nothing until they are allocated.
    Space(std::string name, uint64_t hint, uint64_t bytes);
    ~Space();
    Space(const Space &) = delete;

    // The size of a space for so much memory: addresses are not used again soon.
    static uint64_t roomFor(uint64_t memory);

    const std::string &name() const { return name_; }
    uint64_t base() const { return base_; }
    uint64_t size() const { return size_; }
    bool contains(uint64_t address) const { return address - base_ < size_; }

    // Both are 0 when there is no room. The content is undefined: poisoned when the configuration says so.
    uint64_t allocate(uint64_t bytes);
    bool release(uint64_t address);

    // Fills bytes of an allocation with zeros. Whole pages are given back, so that large memory costs what is used of it.
    static void clear(uint64_t address, uint64_t bytes);

    // The live allocation that holds the address; false when none does.
    bool find(uint64_t address, Allocation *found) const;
    // Describes an address: "byte 8 of allocation 3 (64 bytes) of device 0's memory, released".
    std::string describe(uint64_t address) const;
    uint64_t used() const;
    size_t live() const;
    std::string liveNames() const;

private:
    uint64_t place(uint64_t bytes);

    const std::string name_;
    uint64_t base_ = 0, size_ = 0, cursor_ = 0, used_ = 0, count_ = 0;
    mutable std::mutex mutex_;
    std::map<uint64_t, Allocation> live_, released_;
};

} // namespace emulator
