#include "driver.h"

#include <cstdio>

#include "config.h"
#include "findings.h"

namespace emulator {

Driver::Driver() : pinned("pinned host memory", 0x4c0000000000, Space::roomFor(config().memory)) {
    for (int i = 0; i < config().devices; i++) devices.push_back(std::make_unique<Device>(i, config().memory));
    if (!faults.plan(config().fail))
        fprintf(stderr, "emulated GPU: PLIMSOLL_EMULATOR_FAIL: %s is not NAME:N=ERROR,...\n", config().fail.c_str());
}

void Driver::learn(const RecordPtr &record) { known.join(*record->clock); }

void Driver::await(std::unique_lock<std::mutex> &lock, const RecordPtr &record) {
    if (!record) return;
    record->changed.wait(lock, [&] { return record->done; });
    learn(record);
}

void Driver::touch(uint64_t address, int party, const Task &task) {
    Allocation a;
    if (const Space *of = space(address); of && of->find(address, &a)) uses_[{a.address, a.number}][party] = {task.what, task.record};
}

void Driver::checkUnused(const Allocation &allocation, const Space &of, const std::string &call) {
    for (const auto &[party, use] : uses_[{allocation.address, allocation.number}])
        if (known.at(party) < use.record->clock->at(party))
            findings().add(Finding::early, call + " of " + allocation.name(of.name()) + ", which a " + use.what +
                                               " uses: nobody has waited for that");
    uses_.erase({allocation.address, allocation.number});
}

Space *Driver::space(uint64_t address) {
    if (pinned.contains(address)) return &pinned;
    for (const auto &device : devices)
        if (device->memory.contains(address)) return &device->memory;
    return nullptr;
}

Device *Driver::device(CUdevice ordinal) {
    const bool exists = ordinal >= 0 && static_cast<size_t>(ordinal) < devices.size();
    return exists ? devices[ordinal].get() : nullptr;
}

Function *Driver::function(CUfunction handle) {
    Function *found = nullptr;
    modules.each([&](const Module &module) {
        for (const auto &[name, function] : module.functions)
            if (function.get() == reinterpret_cast<Function *>(handle)) found = function.get();
    });
    return found;
}

// Never destroyed: streams' threads may outlive main.
Driver &driver() {
    static Driver &d = *new Driver;
    return d;
}

} // namespace emulator
