// plimsollEmulator*: what tests ask; see emulator.h.
#include "../emulator.h"

#include <algorithm>
#include <cstring>

#include "checks.h"
#include "driver.h"
#include "findings.h"
#include "launch.h"

using namespace emulator;

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int plimsollEmulatorFail(const char *faults) {
    const std::lock_guard<std::mutex> guard(driver().mutex);
    return driver().faults.plan(faults) ? 0 : -1;
}

EXPORT void plimsollEmulatorFailClear(void) {
    const std::lock_guard<std::mutex> guard(driver().mutex);
    driver().faults.clear();
}

EXPORT uint64_t plimsollEmulatorCount(const char *name) {
    const std::lock_guard<std::mutex> guard(driver().mutex);
    return driver().faults.count(name);
}

EXPORT size_t plimsollEmulatorFindings(char *text, size_t bytes) {
    const std::string all = findings().text();
    if (text && bytes > 0) {
        const size_t copied = std::min(all.size(), bytes - 1);
        memcpy(text, all.data(), copied);
        text[copied] = 0;
    }
    return all.size();
}

EXPORT void plimsollEmulatorFindingsClear(void) { findings().clear(); }

EXPORT void plimsollEmulatorFinish(void) {
    std::unique_lock<std::mutex> lock(driver().mutex);
    for (Context *context : std::set<Context *>(driver().contexts)) context->finish(lock);
}

EXPORT void plimsollEmulatorLastBlocks(uint64_t blocks) { lastBlocks = blocks; }

EXPORT int plimsollEmulatorChecked(void) { return checks::enabled; }
