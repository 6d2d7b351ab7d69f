// cuModule*, cuFunc*, cuLaunchKernel, cuOccupancy*: modules and launches.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "api.h"
#include "config.h"
#include "launch.h"

using namespace emulator;

namespace {

// The keys of cuLaunchKernel's last parameter: another way to pass the argument, in one buffer.
void *const extraEnd = nullptr, *const extraBuffer = reinterpret_cast<void *>(1), *const extraSize =
                                                                                      reinterpret_cast<void *>(2);

CUresult load(Call &c, const char *image, CUmodule *handle) {
    if (const CUresult refused = c.unsafe()) return refused;
    if (!image) return CUDA_ERROR_INVALID_VALUE;
    const std::vector<std::string> entries = entriesOf(image);
    if (entries.empty()) return CUDA_ERROR_INVALID_IMAGE; // a cubin, or no PTX at all
    if (!endsAsText(image)) return CUDA_ERROR_INVALID_PTX;
    if (!runsOn(config().capability, image)) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    auto module = std::make_shared<Module>();
    module->context = c.context;
    for (const std::string &entry : entries) {
        const Kernel *kernel = findKernel(entry);
        if (!kernel) {
            fprintf(stderr, "emulated GPU: no kernel %s was compiled into this library\n", entry.c_str());
            return CUDA_ERROR_NO_BINARY_FOR_GPU;
        }
        module->functions[entry].reset(new Function{c.context, kernel});
    }
    module->name = "module " + std::to_string(++c.context->moduleCount) + " (" + entries[0] + ", ...)";
    c.context->held.insert(module->name);
    *handle = reinterpret_cast<CUmodule>(driver().modules.add(module));
    return CUDA_SUCCESS;
}

CUresult loadData(const char *name, CUmodule *handle, const void *image) {
    return call(name, Needs::context, [&](Call &c) { return load(c, static_cast<const char *>(image), handle); });
}

template <class Body> CUresult ofFunction(const char *name, CUfunction handle, Body body) {
    return call(name, Needs::context, [&](Call &c) {
        Function *function = driver().function(handle);
        return function ? body(c, *function) : CUDA_ERROR_INVALID_HANDLE;
    });
}

// Takes the argument out of a launch's parameters; null when there is none of the right size.
const void *argumentOf(const Kernel &kernel, void **parameters, void **extra) {
    if (parameters) return parameters[0];
    const void *buffer = nullptr;
    size_t bytes = 0;
    for (; extra && *extra != extraEnd; extra += 2) {
        if (extra[0] == extraBuffer) buffer = extra[1];
        if (extra[0] == extraSize) bytes = *static_cast<const size_t *>(extra[1]);
    }
    return bytes == kernel.argument ? buffer : nullptr;
}

CUresult launch(Issue &i, const Function &function, const Shape &shape, size_t dynamic, const void *argument) {
    if (function.context != &i.stream->context()) return CUDA_ERROR_INVALID_HANDLE;
    if (!argument) return CUDA_ERROR_INVALID_VALUE;
    auto launch = std::make_shared<Launch>();
    launch->kernel = function.kernel, launch->shape = shape, launch->dynamic = dynamic;
    const char *bytes = static_cast<const char *>(argument);
    launch->argument.assign(bytes, bytes + function.kernel->argument);
    if (const CUresult refused = launch->check(function, i.stream->context().device)) return refused;
    driver().faults.note(std::string("kernel ") + function.kernel->name);
    Task task;
    task.kind = Task::launch;
    task.what = std::string("kernel ") + function.kernel->name;
    task.run = [launch] { return launch->run(); };
    return i.push(std::move(task), CU_GRAPH_NODE_TYPE_KERNEL);
}

// Blocks of a multiprocessor at the same time, by threads, shared memory and their number. Registers do not count.
int residentBlocks(const Device &device, int threads, size_t shared) {
    if (threads <= 0 || threads > maxThreads) return 0;
    int most = device.attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
    most = std::min(most, device.attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) / threads);
    const int each = static_cast<int>(shared) + device.attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
    return std::min(most, device.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR) / each);
}

} // namespace

API(cuModuleLoadData, CUmodule *module, const void *image) { return loadData(__func__, module, image); }

API(cuModuleLoadDataEx, CUmodule *module, const void *image, unsigned, CUjit_option *, void **) {
    return loadData(__func__, module, image);
}

API(cuModuleUnload, CUmodule handle) {
    return call(__func__, Needs::release, [&](Call &c) {
        const auto module = driver().modules.find(handle);
        if (!module) return CUDA_ERROR_INVALID_HANDLE;
        module->context->synchronize(c.lock);
        module->context->held.erase(module->name);
        driver().modules.remove(handle);
        return CUDA_SUCCESS;
    });
}

// The first call for a function loads it, which may wait for the whole context: here it always does.
API(cuModuleGetFunction, CUfunction *handle, CUmodule module, const char *name) {
    return call(__func__, Needs::context, [&](Call &c) {
        const auto m = driver().modules.find(module);
        if (!m) return CUDA_ERROR_INVALID_HANDLE;
        const auto function = m->functions.find(name);
        if (function == m->functions.end()) return CUDA_ERROR_NOT_FOUND;
        Function *found = function->second.get();
        if (!found->loaded) m->context->synchronize(c.lock);
        found->loaded = true;
        *handle = reinterpret_cast<CUfunction>(found);
        return CUDA_SUCCESS;
    });
}

API(cuFuncLoad, CUfunction handle) {
    return ofFunction(__func__, handle, [](Call &, Function &) { return CUDA_SUCCESS; });
}

API(cuFuncGetAttribute, int *value, CUfunction_attribute which, CUfunction handle) {
    return ofFunction(__func__, handle, [&](Call &, Function &function) {
        switch (which) {
        case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = static_cast<int>(function.kernel->threads); break;
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = static_cast<int>(function.dynamicLimit); break;
        case CU_FUNC_ATTRIBUTE_PTX_VERSION: *value = 75; break;
        case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = 90; break;
        default: return CUDA_ERROR_NOT_SUPPORTED; // what only a compiler for a GPU knows
        }
        return CUDA_SUCCESS;
    });
}

API(cuFuncSetAttribute, CUfunction handle, CUfunction_attribute which, int value) {
    return ofFunction(__func__, handle, [&](Call &c, Function &function) {
        if (which == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) return CUDA_SUCCESS;
        if (which != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_ERROR_INVALID_VALUE;
        const int most = c.context->device.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
        if (value < 0 || value > most) return CUDA_ERROR_INVALID_VALUE;
        function.dynamicLimit = static_cast<unsigned>(value);
        return CUDA_SUCCESS;
    });
}

API(cuFuncSetCacheConfig, CUfunction handle, CUfunc_cache) {
    return ofFunction(__func__, handle, [](Call &, Function &) { return CUDA_SUCCESS; });
}

API(cuLaunchKernel, CUfunction handle, unsigned bx, unsigned by, unsigned bz, unsigned tx, unsigned ty, unsigned tz,
    unsigned dynamic, CUstream stream, void **parameters, void **extra) {
    return issue(__func__, stream, [&](Issue &i) {
        const Function *function = driver().function(handle);
        if (!function) return CUDA_ERROR_INVALID_HANDLE;
        const Shape shape{{bx, by, bz}, {tx, ty, tz}};
        return launch(i, *function, shape, dynamic, argumentOf(*function->kernel, parameters, extra));
    });
}

API(cuOccupancyMaxActiveBlocksPerMultiprocessor, int *blocks, CUfunction handle, int threads, size_t dynamic) {
    return ofFunction(__func__, handle, [&](Call &c, Function &) {
        *blocks = residentBlocks(c.context->device, threads, dynamic);
        return CUDA_SUCCESS;
    });
}
