// The driver: what the process has one of.
#pragma once
#include <cuda.h>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "clock.h"
#include "context.h"
#include "event.h"
#include "faults.h"
#include "gpu.h"
#include "graph.h"
#include "handles.h"
#include "module.h"
#include "space.h"

namespace emulator {

// Driver is the root of everything. Its mutex guards all state but what has its own (spaces, findings, the checks);
// tasks run without it.
struct Driver {
    Driver();

    std::mutex mutex;
    bool initialized = false;
    std::vector<std::unique_ptr<Device>> devices;
    Space pinned;
    std::set<uint64_t> portable; // addresses of pinned allocations that are meant for all contexts
    Clock known; // what the host knows to be complete
    Faults faults;
    std::set<Context *> contexts;
    std::vector<std::weak_ptr<Capture>> captures; // in progress
    Handles<Event> events;
    Handles<Module> modules;
    Handles<Graph> graphs;
    Handles<GraphExec> execs;

    // The function of a handle; null when no loaded module has it.
    Function *function(CUfunction handle);

    // The host learns that a record is complete.
    void learn(const RecordPtr &record);
    // Blocks until it is, and learns that.
    void await(std::unique_lock<std::mutex> &lock, const RecordPtr &record);
    // A task of a party touches memory. Releasing that before the host knows that the task is complete is a finding.
    void touch(uint64_t address, int party, const Task &task);
    void checkUnused(const Allocation &allocation, const Space &of, const std::string &call);
    // The space that holds the address; null when it is no memory of the emulator.
    Space *space(uint64_t address);
    Device *device(CUdevice ordinal);

private:
    struct Use {
        std::string what;
        RecordPtr record;
    };
    std::map<std::pair<uint64_t, uint64_t>, std::map<int, Use>> uses_; // of allocations (address, number), by party: the latest
};

Driver &driver();

} // namespace emulator
