// cuCtx*, cuDevicePrimaryCtx*: contexts.
#include "api.h"

using namespace emulator;

namespace {

CUcontext handleOf(Context *context) { return reinterpret_cast<CUcontext>(context); }

Context *contextOf(CUcontext handle) {
    Context *context = reinterpret_cast<Context *>(handle);
    return driver().contexts.count(context) ? context : nullptr;
}

// Ends a context: waits for its work, reports what it leaves, makes all of its handles invalid.
void destroy(Call &c, Context *context) {
    driver().execs.removeOf(context);
    context->close(c.lock);
    driver().events.removeOf(context);
    driver().modules.removeOf(context);
    driver().graphs.removeOf(context);
    for (Context *other : driver().contexts) other->peers.erase(context);
    delete context;
}

template <class Body> CUresult ofCurrent(const char *name, Body body) {
    return call(name, Needs::context, [&](Call &c) {
        body(*c.context);
        return CUDA_SUCCESS;
    });
}

} // namespace

API(cuCtxCreate, CUcontext *handle, unsigned flags, CUdevice ordinal) {
    return call(__func__, Needs::init, [&](Call &c) {
        Device *device = driver().device(ordinal);
        if (!device) return CUDA_ERROR_INVALID_DEVICE;
        if (device->lost) return device->lost;
        if (const CUresult refused = c.unsafe()) return refused;
        Context *context = new Context(*device, flags, false);
        contextStack().push_back(context);
        *handle = handleOf(context);
        return CUDA_SUCCESS;
    });
}

API(cuCtxDestroy, CUcontext handle) {
    return call(__func__, Needs::init, [&](Call &c) {
        Context *context = contextOf(handle);
        if (!context || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
        destroy(c, context);
        if (!contextStack().empty() && contextStack().back() == context) contextStack().pop_back();
        return CUDA_SUCCESS;
    });
}

API(cuDevicePrimaryCtxRetain, CUcontext *handle, CUdevice ordinal) {
    return call(__func__, Needs::init, [&](Call &) {
        Device *device = driver().device(ordinal);
        if (!device) return CUDA_ERROR_INVALID_DEVICE;
        if (device->lost) return device->lost;
        if (!device->primary) device->primary = new Context(*device, device->primaryFlags, true);
        device->primaryUsers++;
        *handle = handleOf(device->primary);
        return CUDA_SUCCESS;
    });
}

API(cuDevicePrimaryCtxRelease, CUdevice ordinal) {
    return call(__func__, Needs::init, [&](Call &c) {
        Device *device = driver().device(ordinal);
        if (!device) return CUDA_ERROR_INVALID_DEVICE;
        if (device->primaryUsers == 0) return CUDA_ERROR_INVALID_CONTEXT;
        if (--device->primaryUsers > 0) return CUDA_SUCCESS;
        Context *context = device->primary;
        device->primary = nullptr;
        destroy(c, context);
        return CUDA_SUCCESS;
    });
}

API(cuDevicePrimaryCtxGetState, CUdevice ordinal, unsigned *flags, int *active) {
    return call(__func__, Needs::init, [&](Call &) {
        Device *device = driver().device(ordinal);
        if (!device) return CUDA_ERROR_INVALID_DEVICE;
        *flags = device->primaryFlags;
        *active = device->primary != nullptr;
        return CUDA_SUCCESS;
    });
}

API(cuDevicePrimaryCtxSetFlags, CUdevice ordinal, unsigned flags) {
    return call(__func__, Needs::init, [&](Call &) {
        Device *device = driver().device(ordinal);
        if (!device) return CUDA_ERROR_INVALID_DEVICE;
        device->primaryFlags = flags;
        return CUDA_SUCCESS;
    });
}

API(cuCtxGetCurrent, CUcontext *handle) {
    return call(__func__, Needs::init, [&](Call &) {
        *handle = contextStack().empty() ? nullptr : handleOf(contextStack().back());
        return CUDA_SUCCESS;
    });
}

API(cuCtxSetCurrent, CUcontext handle) {
    return call(__func__, Needs::init, [&](Call &) {
        if (handle && !contextOf(handle)) return CUDA_ERROR_INVALID_CONTEXT;
        if (!contextStack().empty()) contextStack().pop_back();
        if (handle) contextStack().push_back(contextOf(handle));
        return CUDA_SUCCESS;
    });
}

API(cuCtxPushCurrent, CUcontext handle) {
    return call(__func__, Needs::init, [&](Call &) {
        if (!contextOf(handle)) return CUDA_ERROR_INVALID_CONTEXT;
        contextStack().push_back(contextOf(handle));
        return CUDA_SUCCESS;
    });
}

API(cuCtxPopCurrent, CUcontext *handle) {
    return call(__func__, Needs::init, [&](Call &) {
        if (contextStack().empty()) return CUDA_ERROR_INVALID_CONTEXT;
        if (handle) *handle = handleOf(contextStack().back());
        contextStack().pop_back();
        return CUDA_SUCCESS;
    });
}

API(cuCtxGetDevice, CUdevice *device) {
    return ofCurrent(__func__, [&](Context &context) { *device = context.device.ordinal; });
}

API(cuCtxGetFlags, unsigned *flags) {
    return ofCurrent(__func__, [&](Context &context) { *flags = context.flags; });
}

API(cuCtxGetApiVersion, CUcontext handle, unsigned *version) {
    return call(__func__, Needs::init, [&](Call &) {
        if (handle && !contextOf(handle)) return CUDA_ERROR_INVALID_CONTEXT;
        *version = CUDA_VERSION;
        return CUDA_SUCCESS;
    });
}

API(cuCtxGetStreamPriorityRange, int *least, int *greatest) {
    return ofCurrent(__func__, [&](Context &) { *least = 0, *greatest = -5; });
}

API(cuCtxSynchronize) {
    return call(__func__, Needs::context, [&](Call &c) {
        if (const CUresult refused = c.unsafe()) return refused;
        for (const auto &stream : c.context->streams()) {
            if (!stream->capture) continue;
            stream->capture->invalidate();
            return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
        c.context->synchronize(c.lock);
        return c.outcome();
    });
}

API(cuCtxEnablePeerAccess, CUcontext handle, unsigned flags) {
    return call(__func__, Needs::context, [&](Call &c) {
        Context *peer = contextOf(handle);
        if (!peer) return CUDA_ERROR_INVALID_CONTEXT;
        if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
        if (&peer->device == &c.context->device) return CUDA_ERROR_INVALID_DEVICE;
        return c.context->peers.insert(peer).second ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    });
}

API(cuCtxDisablePeerAccess, CUcontext handle) {
    return call(__func__, Needs::context, [&](Call &c) {
        return c.context->peers.erase(contextOf(handle)) ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    });
}

API(cuThreadExchangeStreamCaptureMode, CUstreamCaptureMode *mode) {
    std::swap(*mode, captureMode());
    return CUDA_SUCCESS;
}
