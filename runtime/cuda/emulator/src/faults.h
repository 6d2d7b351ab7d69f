// Faults: failures that a test asked for.
#pragma once
#include <cuda.h>
#include <map>
#include <string>

#include "stream.h"

namespace emulator {

// Faults counts calls and tasks, and says which of them fail. A fault is "name:n=error". The n-th call (from 1, from
// now) of the function of that name, with or without _v2, returns the error. If the name is "launch" or "copy", the
// n-th task of that kind ends with the error, and a later call reports it. Several faults are separated by commas.
class Faults {
public:
    // Returns false for a text that it does not understand.
    bool plan(const std::string &text);
    CUresult ofCall(const std::string &name);
    CUresult ofTask(Task::Kind kind);
    void note(const std::string &name) { ++counts_[name]; }
    uint64_t count(const std::string &name) const;
    void clear() { planned_.clear(); }

private:
    CUresult step(const std::string &name);

    std::map<std::string, uint64_t> counts_;
    std::map<std::string, std::map<uint64_t, CUresult>> planned_; // by name and count
};

} // namespace emulator
