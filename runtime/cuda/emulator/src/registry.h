// The kernels that were compiled into this library.
#pragma once
#include <cstddef>
#include <string>

namespace emulator {

// Kernel is one host-compiled kernel. It takes one parameter, a struct, by value.
struct Kernel {
    const char *name;
    const char *file;
    size_t argument;         // bytes of the struct
    unsigned threads;        // the greatest block it may be launched with
    void (*run)(const void *argument); // runs one thread of it
};

// Finds a kernel by the name of its entry; null when no source defines it.
const Kernel *findKernel(const std::string &name);

} // namespace emulator
