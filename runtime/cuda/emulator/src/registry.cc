#include "registry.h"

#include <cstdio>
#include <cstdlib>
#include <map>

#include "../device.h"

namespace emulator {

namespace {

struct Registry {
    std::map<std::string, Kernel> kernels;
};

// A function's static: kernels register before this file's own statics may exist.
Registry &registry() {
    static Registry r;
    return r;
}

} // namespace

const Kernel *findKernel(const std::string &name) {
    const auto found = registry().kernels.find(name);
    return found == registry().kernels.end() ? nullptr : &found->second;
}

} // namespace emulator

PlimsollKernel::PlimsollKernel(const char *name, const char *file, size_t argument, unsigned threads,
                               void (*run)(const void *)) {
    if (emulator::registry().kernels.insert({name, {name, file, argument, threads, run}}).second) return;
    fprintf(stderr, "emulated GPU: two sources define the kernel %s; the other is %s\n", name, file);
    abort();
}
