// Modules: images of kernels.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "registry.h"

namespace emulator {

class Context;

// Function is a kernel of a loaded module.
struct Function {
    Context *context;
    const Kernel *kernel;
    bool loaded = false;              // cuModuleGetFunction has been asked for it
    unsigned dynamicLimit = 48 << 10; // bytes of dynamic shared memory that a launch may ask for
};

// Module is a loaded image. The image's code does not run: its entries name the kernels of this library.
struct Module {
    Context *context;
    std::string name; // for reports
    std::map<std::string, std::unique_ptr<Function>> functions;
};

// Reports whether a GPU of a capability, times ten, runs a text of PTX. A target with the suffix a is for one capability alone.
bool runsOn(int capability, const std::string &ptx);

// The names behind ".entry" in a text of PTX, in their order.
std::vector<std::string> entriesOf(const std::string &ptx);

// Reports whether a text of PTX ends as one: with a function or a declaration. If the program did not end an image with a zero byte, memory
// follows the text, and the compiler of PTX refuses that.
bool endsAsText(const std::string &ptx);

} // namespace emulator
