// Watching: what the checked build does at every access of a kernel.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "race.h"
#include "space.h"

namespace emulator {

// Watch judges the accesses of the block that runs on this thread of the host.
class Watch {
public:
    static Watch &ofThisThread();

    void begin(void *shared, size_t dynamic, uint64_t block);
    // A thread of the block accesses memory. An access that must not happen ends the block: this does not return.
    void access(uint64_t address, unsigned bytes, bool write, bool atomic);

private:
    Watch();
    void accessSpace(Space &space, uint64_t address, unsigned bytes, bool write, bool atomic);
    void accessShared(RaceShadow &shadow, uint64_t address, unsigned bytes, bool write, bool atomic);
    void report(const RaceShadow::Conflict &conflict, const std::string &where, bool write) const;
    const Allocation &holder(const Space &space, uint64_t address, unsigned bytes);
    Actor actor() const;
    void poison();

    uint64_t dynamic_ = 0;     // where dynamic shared memory lies
    size_t dynamicBytes_ = 0;  // of this launch
    uint64_t static_ = 0;      // where static shared memory lies
    size_t staticBytes_ = 0;
    uint64_t dirtyFrom_ = 0, dirtyTo_ = 0; // of static shared memory: what this block has touched
    uint32_t block_ = 0;
    std::unique_ptr<RaceShadow> staticShadow_, dynamicShadow_;
    std::vector<Allocation> recent_; // live ones that this block has touched
};

} // namespace emulator
