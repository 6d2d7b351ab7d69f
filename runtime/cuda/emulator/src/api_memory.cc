// cuMem*: memory, copies and fills.
#include <cstring>

#include "api.h"
#include "checks.h"
#include "findings.h"

using namespace emulator;

namespace {

// Side says what a parameter of a copy must be.
enum class Side { device, host, any };

uint64_t addressOf(const void *p) { return reinterpret_cast<uint64_t>(p); }

bool isDevice(const Space *space) { return space && space != &driver().pinned; }

// Reports whether the range lies in one live allocation of the right kind. Pageable memory is the program's own.
bool valid(const std::string &call, uint64_t address, size_t bytes, Side side) {
    Space *space = driver().space(address);
    if (side == Side::device && !isDevice(space)) return false;
    if (side == Side::host && isDevice(space)) return false;
    if (!space) return address != 0;
    Allocation a;
    if (space->find(address, &a) && address + bytes <= a.end()) return true;
    findings().add(Finding::bounds, call + " of " + std::to_string(bytes) + " bytes at " + space->describe(address));
    return false;
}

// Copy is one copy between any two memories.
struct Copy {
    uint64_t to, from;
    size_t bytes;
    Side toSide, fromSide;

    bool pageableSource() const { return !driver().space(from); }
    bool pageableTarget() const { return !driver().space(to); }
    bool onDevices() const { return isDevice(driver().space(to)) && isDevice(driver().space(from)); }
    Task task() const;
    CUresult check(const std::string &call, const Context &context) const {
        if (!valid(call, to, bytes, toSide) || !valid(call, from, bytes, fromSide)) return CUDA_ERROR_INVALID_VALUE;
        for (const uint64_t address : {to, from}) checkOwner(call, address, context);
        return CUDA_SUCCESS;
    }
    static void checkOwner(const std::string &call, uint64_t address, const Context &context);
};

// Page-locked memory is that for the context that allocated it, and for others if it is portable.
void Copy::checkOwner(const std::string &call, uint64_t address, const Context &context) {
    Allocation a;
    if (!driver().pinned.find(address, &a) || context.memory.count(a.address) || driver().portable.count(a.address)) return;
    findings().add(Finding::foreign, call + ": " + a.name(driver().pinned.name()) + " is of another context, and not portable");
}

// The addresses of a peer copy lie on the devices of the contexts that are named with them.
bool onDevice(CUcontext handle, CUdeviceptr address) {
    Context *context = reinterpret_cast<Context *>(handle);
    return driver().contexts.count(context) && context->device.memory.contains(address);
}

Task Copy::task() const {
    Task task;
    task.kind = Task::copy;
    task.what = "copy of " + std::to_string(bytes) + " bytes";
    task.touches = {to, from};
    task.run = [copy = *this] {
        checks::access(copy.from, copy.bytes, false);
        checks::access(copy.to, copy.bytes, true);
        memmove(reinterpret_cast<void *>(copy.to), reinterpret_cast<const void *>(copy.from), copy.bytes);
        return CUDA_SUCCESS;
    };
    return task;
}

// A copy from pageable memory takes the bytes at the call; CUDA may do so or not, and the program may not count on
// either, but it is free to change them when the call returns only if it did.
void stage(Copy &copy, Task &task) {
    const char *bytes = reinterpret_cast<const char *>(copy.from);
    const auto staged = std::make_shared<std::vector<char>>(bytes, bytes + copy.bytes);
    task.run = [copy, staged] {
        checks::access(copy.to, copy.bytes, true);
        memcpy(reinterpret_cast<void *>(copy.to), staged->data(), copy.bytes);
        return CUDA_SUCCESS;
    };
}

CUresult issueCopy(Issue &i, Copy copy, bool synchronous) {
    if (copy.bytes == 0) return CUDA_SUCCESS;
    if (const CUresult refused = copy.check(i.call.name, i.stream->context())) return refused;
    if (synchronous)
        if (const CUresult refused = i.call.unsafe()) return refused;
    const bool captured = i.stream->capture != nullptr;
    Task task = copy.task();
    if (!captured && copy.pageableSource()) stage(copy, task);
    if (const CUresult refused = i.push(std::move(task), CU_GRAPH_NODE_TYPE_MEMCPY)) return refused;
    const bool blocks = synchronous ? !copy.onDevices() : copy.pageableTarget();
    if (captured || !blocks) return CUDA_SUCCESS;
    driver().await(i.call.lock, RecordPtr(i.stream->tail()));
    return i.call.outcome();
}

CUresult copyNow(const char *name, Copy copy) {
    return issue(name, nullptr, [&](Issue &i) { return issueCopy(i, copy, true); });
}

CUresult copyLater(const char *name, Copy copy, CUstream stream) {
    return issue(name, stream, [&](Issue &i) { return issueCopy(i, copy, false); });
}

template <class T> CUresult fill(const char *name, uint64_t address, T value, size_t count, CUstream stream) {
    return issue(name, stream, [&](Issue &i) {
        const size_t bytes = count * sizeof(T);
        if (address % sizeof(T) != 0 || !valid(i.call.name, address, bytes, Side::device))
            return CUDA_ERROR_INVALID_VALUE;
        Task task;
        task.kind = Task::fill;
        task.what = "fill of " + std::to_string(bytes) + " bytes";
        task.run = [=] {
            checks::access(address, bytes, true);
            if (value == 0)
                Space::clear(address, bytes);
            else
                std::fill_n(reinterpret_cast<T *>(address), count, value);
            return CUDA_SUCCESS;
        };
        return i.push(std::move(task), CU_GRAPH_NODE_TYPE_MEMSET);
    });
}

CUresult allocate(Call &c, Space &space, size_t bytes, uint64_t *address) {
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult refused = c.unsafe()) return refused;
    if (&space != &driver().pinned && (bytes > c.context->device.bytes ||
                                       space.used() + (bytes + 511) / 512 * 512 > c.context->device.bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *address = space.allocate(bytes);
    if (*address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    c.context->memory.insert(*address);
    return CUDA_SUCCESS;
}

// CUDA waits for the device before it takes memory away. It promises that nowhere, so a program that counts on it is a
// finding.
CUresult release(Call &c, uint64_t address, bool device) {
    if (address == 0 && device) return CUDA_SUCCESS;
    if (const CUresult refused = c.unsafe()) return refused;
    Space *space = driver().space(address);
    Allocation a;
    if (!space || device != isDevice(space) || !space->find(address, &a) || a.address != address) {
        findings().add(Finding::handle, c.name + " of " + (space ? space->describe(address) : "a foreign address"));
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!c.context->dead()) driver().checkUnused(a, *space, c.name);
    for (Context *context : std::set<Context *>(driver().contexts)) context->synchronize(c.lock);
    driver().portable.erase(address);
    for (Context *context : driver().contexts) context->memory.erase(address);
    checks::forget(address, a.bytes);
    space->release(address);
    return CUDA_SUCCESS;
}

CUresult allocateHost(const char *name, void **address, size_t bytes, unsigned flags) {
    return call(name, Needs::context, [&](Call &c) {
        uint64_t at = 0;
        const CUresult result = allocate(c, driver().pinned, bytes, &at);
        if (result != CUDA_SUCCESS) return result;
        *address = reinterpret_cast<void *>(at);
        if (flags & CU_MEMHOSTALLOC_PORTABLE) driver().portable.insert(at);
        return result;
    });
}

} // namespace

API(cuMemGetInfo, size_t *free, size_t *total) {
    return call(__func__, Needs::context, [&](Call &c) {
        *total = c.context->device.bytes;
        *free = *total - c.context->device.memory.used();
        return CUDA_SUCCESS;
    });
}

API(cuMemAlloc, CUdeviceptr *address, size_t bytes) {
    return call(__func__, Needs::context, [&](Call &c) {
        uint64_t at = 0;
        const CUresult result = allocate(c, c.context->device.memory, bytes, &at);
        if (result == CUDA_SUCCESS) *address = at;
        return result;
    });
}

API(cuMemFree, CUdeviceptr address) {
    return call(__func__, Needs::release, [&](Call &c) { return release(c, address, true); });
}

API(cuMemAllocHost, void **address, size_t bytes) { return allocateHost(__func__, address, bytes, 0); }

API(cuMemHostAlloc, void **address, size_t bytes, unsigned flags) { return allocateHost(__func__, address, bytes, flags); }

API(cuMemFreeHost, void *address) {
    return call(__func__, Needs::release, [&](Call &c) { return release(c, addressOf(address), false); });
}

API(cuMemHostGetDevicePointer, CUdeviceptr *device, void *host, unsigned) {
    return call(__func__, Needs::context, [&](Call &) {
        Allocation a;
        if (!driver().pinned.find(addressOf(host), &a)) return CUDA_ERROR_INVALID_VALUE;
        *device = addressOf(host);
        return CUDA_SUCCESS;
    });
}

API(cuMemGetAddressRange, CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
    return call(__func__, Needs::context, [&](Call &) {
        Space *space = driver().space(address);
        Allocation a;
        if (!space || !space->find(address, &a)) return CUDA_ERROR_NOT_FOUND;
        if (base) *base = a.address;
        if (bytes) *bytes = a.bytes;
        return CUDA_SUCCESS;
    });
}

API(cuPointerGetAttribute, void *value, CUpointer_attribute which, CUdeviceptr address) {
    return call(__func__, Needs::context, [&](Call &) {
        Space *space = driver().space(address);
        Allocation a;
        if (!space || !space->find(address, &a)) return CUDA_ERROR_INVALID_VALUE;
        if (which == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
            *static_cast<unsigned *>(value) = isDevice(space) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
        else if (which == CU_POINTER_ATTRIBUTE_DEVICE_POINTER)
            *static_cast<CUdeviceptr *>(value) = address;
        else
            return CUDA_ERROR_NOT_SUPPORTED;
        return CUDA_SUCCESS;
    });
}

API(cuMemcpy, CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return copyNow(__func__, {to, from, bytes, Side::any, Side::any});
}
API(cuMemcpyAsync, CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return copyLater(__func__, {to, from, bytes, Side::any, Side::any}, stream);
}
API(cuMemcpyHtoD, CUdeviceptr to, const void *from, size_t bytes) {
    return copyNow(__func__, {to, addressOf(from), bytes, Side::device, Side::host});
}
API(cuMemcpyHtoDAsync, CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    return copyLater(__func__, {to, addressOf(from), bytes, Side::device, Side::host}, stream);
}
API(cuMemcpyDtoH, void *to, CUdeviceptr from, size_t bytes) {
    return copyNow(__func__, {addressOf(to), from, bytes, Side::host, Side::device});
}
API(cuMemcpyDtoHAsync, void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return copyLater(__func__, {addressOf(to), from, bytes, Side::host, Side::device}, stream);
}
API(cuMemcpyDtoD, CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return copyNow(__func__, {to, from, bytes, Side::device, Side::device});
}
API(cuMemcpyDtoDAsync, CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return copyLater(__func__, {to, from, bytes, Side::device, Side::device}, stream);
}
API(cuMemcpyPeer, CUdeviceptr to, CUcontext toContext, CUdeviceptr from, CUcontext fromContext, size_t bytes) {
    return issue(__func__, nullptr, [&](Issue &i) {
        if (!onDevice(toContext, to) || !onDevice(fromContext, from)) return CUDA_ERROR_INVALID_VALUE;
        return issueCopy(i, {to, from, bytes, Side::device, Side::device}, true);
    });
}
API(cuMemcpyPeerAsync, CUdeviceptr to, CUcontext toContext, CUdeviceptr from, CUcontext fromContext, size_t bytes, CUstream stream) {
    return issue(__func__, stream, [&](Issue &i) {
        if (!onDevice(toContext, to) || !onDevice(fromContext, from)) return CUDA_ERROR_INVALID_VALUE;
        return issueCopy(i, {to, from, bytes, Side::device, Side::device}, false);
    });
}

API(cuMemsetD8, CUdeviceptr address, unsigned char value, size_t count) {
    return fill(__func__, address, value, count, nullptr);
}
API(cuMemsetD8Async, CUdeviceptr address, unsigned char value, size_t count, CUstream stream) {
    return fill(__func__, address, value, count, stream);
}
API(cuMemsetD16, CUdeviceptr address, unsigned short value, size_t count) {
    return fill(__func__, address, value, count, nullptr);
}
API(cuMemsetD16Async, CUdeviceptr address, unsigned short value, size_t count, CUstream stream) {
    return fill(__func__, address, value, count, stream);
}
API(cuMemsetD32, CUdeviceptr address, unsigned value, size_t count) {
    return fill(__func__, address, value, count, nullptr);
}
API(cuMemsetD32Async, CUdeviceptr address, unsigned value, size_t count, CUstream stream) {
    return fill(__func__, address, value, count, stream);
}
