#include "faults.h"

#include <cstdio>
#include <sstream>

namespace emulator {

namespace {

std::string withoutVersion(const std::string &name) {
    const size_t at = name.rfind("_v");
    return at == std::string::npos ? name : name.substr(0, at);
}

} // namespace

bool Faults::plan(const std::string &text) {
    std::istringstream all(text);
    for (std::string one; std::getline(all, one, ',');) {
        char name[100];
        unsigned long long n = 0;
        int error = 0;
        if (sscanf(one.c_str(), "%99[^:]:%llu=%d", name, &n, &error) != 3 || n == 0 || error <= 0) return false;
        planned_[name][counts_[name] + n] = static_cast<CUresult>(error);
    }
    return true;
}

CUresult Faults::step(const std::string &name) {
    const uint64_t n = ++counts_[name];
    const auto plan = planned_.find(name);
    if (plan == planned_.end()) return CUDA_SUCCESS;
    const auto fault = plan->second.find(n);
    return fault == plan->second.end() ? CUDA_SUCCESS : fault->second;
}

CUresult Faults::ofCall(const std::string &name) { return step(withoutVersion(name)); }

CUresult Faults::ofTask(Task::Kind kind) {
    switch (kind) {
    case Task::launch: return step("launch");
    case Task::copy: return step("copy");
    case Task::fill: return step("fill");
    case Task::host: return step("host");
    case Task::order: break;
    }
    return CUDA_SUCCESS;
}

uint64_t Faults::count(const std::string &name) const {
    const auto found = counts_.find(name);
    return found == counts_.end() ? 0 : found->second;
}

} // namespace emulator
