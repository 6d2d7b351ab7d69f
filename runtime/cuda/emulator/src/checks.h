// Checks: what the checked build watches while work runs.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "clock.h"
#include "race.h"
#include "space.h"

namespace emulator::checks {

// Whether this is the checked build: markers/end.cc says so.
extern const bool enabled;

// Registers a task that starts to run and returns the number that accesses carry. The clock is its place in the order
// of all work; stream and what are for reports.
uint32_t operation(const std::string &what, const std::string &stream, int party, const ClockPtr &clock);

// A copy or fill reads or writes bytes of an emulated space (others are ignored) in the running task.
void access(uint64_t address, uint64_t bytes, bool write);

// The running thread of a block touches memory, of any kind.
void accessHere(uint64_t address, unsigned bytes, bool write);

// Memory is released: what was known of its accesses is not any more.
void forget(uint64_t address, uint64_t bytes);

// A block starts on this thread of the host.
void beginBlock(void *shared, size_t dynamic, uint64_t index);

// For Watch: an access to a space, and the shadow of a space.
void accessOf(const Space &space, uint64_t address, uint64_t bytes, bool write);
RaceShadow &raceOf(const Space &space);

} // namespace emulator::checks
