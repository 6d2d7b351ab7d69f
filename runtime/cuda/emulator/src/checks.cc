#include "checks.h"

#include <map>
#include <memory>

#include "driver.h"
#include "operations.h"
#include "order.h"
#include "race.h"
#include "watch.h"

namespace emulator::checks {

namespace {

// Shadow is what is known of a space's accesses.
struct Shadow {
    explicit Shadow(const Space &space) : order(space), race(space.base(), space.size(), false) {}
    OrderShadow order;
    RaceShadow race;
};

Shadow &shadowOf(const Space &space) {
    static std::map<const Space *, std::unique_ptr<Shadow>> &all = *new std::map<const Space *, std::unique_ptr<Shadow>>;
    static const bool made = [] {
        all[&driver().pinned] = std::make_unique<Shadow>(driver().pinned);
        for (const auto &device : driver().devices) all[&device->memory] = std::make_unique<Shadow>(device->memory);
        return true;
    }();
    (void)made;
    return *all.find(&space)->second;
}

} // namespace

uint32_t operation(const std::string &what, const std::string &stream, int party, const ClockPtr &clock) {
    return enabled ? operations().add({what + " on " + stream, party, clock}) : 0;
}

void access(uint64_t address, uint64_t bytes, bool write) {
    if (!enabled) return;
    if (const Space *space = driver().space(address)) accessOf(*space, address, bytes, write);
}

void accessHere(uint64_t address, unsigned bytes, bool write) {
    if (enabled) Watch::ofThisThread().access(address, bytes, write, false);
}

void accessOf(const Space &space, uint64_t address, uint64_t bytes, bool write) {
    shadowOf(space).order.access(address, bytes, write, currentWork.operation);
}

RaceShadow &raceOf(const Space &space) { return shadowOf(space).race; }

void forget(uint64_t address, uint64_t bytes) {
    if (!enabled) return;
    Shadow &shadow = shadowOf(*driver().space(address));
    shadow.order.forget(address, bytes);
    shadow.race.forget(address, bytes);
}

void beginBlock(void *shared, size_t dynamic, uint64_t index) {
    if (enabled) Watch::ofThisThread().begin(shared, dynamic, index);
}

} // namespace emulator::checks
