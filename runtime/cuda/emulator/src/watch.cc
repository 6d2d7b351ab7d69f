#include "watch.h"

#include <algorithm>
#include <cstring>

#include "block.h"
#include "checks.h"
#include "driver.h"
#include "findings.h"
#include "shared.h"

extern "C" char __ehdr_start __attribute__((visibility("hidden")));
extern "C" char _end __attribute__((visibility("hidden")));

namespace emulator {

namespace {

uint64_t addressOf(const void *p) { return reinterpret_cast<uint64_t>(p); }

} // namespace

Watch &Watch::ofThisThread() {
    static thread_local std::unique_ptr<Watch> watch;
    if (!watch) watch.reset(new Watch);
    return *watch;
}

Watch::Watch()
    : static_(addressOf(plimsollSharedBegin)), staticBytes_(addressOf(plimsollSharedEnd) - addressOf(plimsollSharedBegin)),
      dirtyFrom_(static_), dirtyTo_(static_ + staticBytes_),
      staticShadow_(std::make_unique<RaceShadow>(static_, staticBytes_, true)) {}

void Watch::begin(void *shared, size_t dynamic, uint64_t block) {
    if (dynamic_ != addressOf(shared)) {
        dynamic_ = addressOf(shared);
        dynamicShadow_ = std::make_unique<RaceShadow>(dynamic_, maxDynamic, true);
    }
    dynamicBytes_ = dynamic, block_ = static_cast<uint32_t>(block);
    recent_.clear();
    poison();
}

// Shared memory holds nothing when a block starts.
void Watch::poison() {
    memset(reinterpret_cast<void *>(dynamic_), 0xff, dynamicBytes_);
    if (dirtyTo_ > dirtyFrom_) memset(reinterpret_cast<void *>(dirtyFrom_), 0xff, dirtyTo_ - dirtyFrom_);
    dirtyFrom_ = static_ + staticBytes_, dirtyTo_ = static_;
}

Actor Watch::actor() const {
    const Block &b = *Block::running();
    return {currentWork.operation, block_, b.epoch(), static_cast<uint16_t>(b.warpEpoch()),
            static_cast<uint16_t>(b.thread())};
}

void Watch::access(uint64_t address, unsigned bytes, bool write, bool atomic) {
    if (address - static_ < staticBytes_) {
        dirtyFrom_ = std::min(dirtyFrom_, address), dirtyTo_ = std::max(dirtyTo_, address + bytes);
        return accessShared(*staticShadow_, address, bytes, write, atomic);
    }
    if (address - dynamic_ < maxDynamic) {
        if (address + bytes > dynamic_ + dynamicBytes_)
            Block::running()->fail(CUDA_ERROR_ILLEGAL_ADDRESS, Finding::bounds,
                                   "touches byte " + std::to_string(address - dynamic_) + " of " +
                                       std::to_string(dynamicBytes_) + " bytes of dynamic shared memory");
        return accessShared(*dynamicShadow_, address, bytes, write, atomic);
    }
    if (Space *space = driver().space(address)) return accessSpace(*space, address, bytes, write, atomic);
    Block &block = *Block::running();
    if (block.isPrivate(address) || (address >= addressOf(&__ehdr_start) && address < addressOf(&_end))) return;
    block.fail(CUDA_ERROR_ILLEGAL_ADDRESS, Finding::bounds,
               std::string(write ? "writes" : "reads") + " memory that is not the device's");
}

const Allocation &Watch::holder(const Space &space, uint64_t address, unsigned bytes) {
    for (const Allocation &a : recent_)
        if (address >= a.address && address + bytes <= a.end()) return a;
    Allocation found;
    if (!space.find(address, &found) || address + bytes > found.end())
        Block::running()->fail(CUDA_ERROR_ILLEGAL_ADDRESS, Finding::bounds, "touches " + space.describe(address));
    if (recent_.size() >= 8) recent_.erase(recent_.begin());
    recent_.push_back(found);
    return recent_.back();
}

void Watch::accessSpace(Space &space, uint64_t address, unsigned bytes, bool write, bool atomic) {
    const Allocation &allocation = holder(space, address, bytes);
    if (address % (bytes & -bytes) != 0)
        Block::running()->fail(CUDA_ERROR_MISALIGNED_ADDRESS, Finding::bounds,
                               std::to_string(bytes) + " bytes at once at " + space.describe(address) +
                                   ", which is not a multiple of that");
    checks::accessOf(space, address, bytes, write);
    const RaceShadow::Conflict conflict = checks::raceOf(space).access(address, bytes, write, atomic, actor());
    if (conflict.thread < 0) return;
    report(conflict, "byte " + std::to_string(address - allocation.address) + " of " + allocation.name(space.name()),
           write);
}

void Watch::accessShared(RaceShadow &shadow, uint64_t address, unsigned bytes, bool write, bool atomic) {
    const RaceShadow::Conflict conflict = shadow.access(address, bytes, write, atomic, actor());
    if (conflict.thread >= 0) report(conflict, "shared memory", write);
}

// One finding for a kernel and an allocation: where in it is an example.
void Watch::report(const RaceShadow::Conflict &conflict, const std::string &where, bool write) const {
    Block &block = *Block::running();
    findings().addOnce(Finding::race, std::string(block.kernel().name) + where.substr(where.find(" of ") + 1),
                       std::string("kernel ") + block.kernel().name + ": " + block.nameOf(block.thread()) +
                           (write ? " writes " : " reads ") + where + ", which thread " +
                           std::to_string(conflict.thread) + " of block " + std::to_string(conflict.block) +
                           (conflict.write ? " writes" : " reads") + " without a barrier between");
}

} // namespace emulator
