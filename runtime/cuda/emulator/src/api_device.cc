// cuInit, cuDevice*: the driver and its devices.
#include <cstdio>
#include <cstring>

#include "api.h"

using namespace emulator;

namespace {

template <class Body> CUresult ofDevice(const char *name, CUdevice ordinal, Body body) {
    return call(name, Needs::init, [&](Call &) {
        Device *device = driver().device(ordinal);
        return device ? body(*device) : CUDA_ERROR_INVALID_DEVICE;
    });
}

} // namespace

API(cuInit, unsigned flags) {
    return call(__func__, Needs::nothing, [&](Call &) {
        if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
        if (driver().devices.empty()) return CUDA_ERROR_NO_DEVICE;
        driver().initialized = true;
        return CUDA_SUCCESS;
    });
}

API(cuDriverGetVersion, int *version) {
    return call(__func__, Needs::nothing, [&](Call &) {
        *version = CUDA_VERSION;
        return CUDA_SUCCESS;
    });
}

API(cuGetErrorName, CUresult error, const char **name) {
    *name = errorName(error);
    return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API(cuGetErrorString, CUresult error, const char **text) {
    *text = errorText(error);
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API(cuDeviceGetCount, int *count) {
    return call(__func__, Needs::init, [&](Call &) {
        *count = static_cast<int>(driver().devices.size());
        return CUDA_SUCCESS;
    });
}

API(cuDeviceGet, CUdevice *device, int ordinal) {
    return ofDevice(__func__, ordinal, [&](Device &) {
        *device = ordinal;
        return CUDA_SUCCESS;
    });
}

API(cuDeviceGetName, char *name, int bytes, CUdevice device) {
    return ofDevice(__func__, device, [&](Device &) {
        snprintf(name, bytes, "Plimsoll emulated GPU");
        return CUDA_SUCCESS;
    });
}

API(cuDeviceGetUuid, CUuuid *uuid, CUdevice device) {
    return ofDevice(__func__, device, [&](Device &d) {
        memset(uuid, 0, sizeof *uuid);
        snprintf(uuid->bytes, sizeof uuid->bytes, "emulated %d", d.ordinal);
        return CUDA_SUCCESS;
    });
}

API(cuDeviceGetPCIBusId, char *id, int bytes, CUdevice device) {
    return ofDevice(__func__, device, [&](Device &d) {
        snprintf(id, bytes, "0000:00:%02x.0", d.ordinal);
        return CUDA_SUCCESS;
    });
}

API(cuDeviceTotalMem, size_t *bytes, CUdevice device) {
    return ofDevice(__func__, device, [&](Device &d) {
        *bytes = d.bytes;
        return CUDA_SUCCESS;
    });
}

API(cuDeviceGetAttribute, int *value, CUdevice_attribute which, CUdevice device) {
    return ofDevice(__func__, device, [&](Device &d) {
        const int known = d.attribute(which);
        if (known < 0) return CUDA_ERROR_INVALID_VALUE;
        *value = known;
        return CUDA_SUCCESS;
    });
}

API(cuDeviceCanAccessPeer, int *can, CUdevice device, CUdevice peer) {
    return ofDevice(__func__, device, [&](Device &) {
        if (!driver().device(peer)) return CUDA_ERROR_INVALID_DEVICE;
        *can = device != peer;
        return CUDA_SUCCESS;
    });
}

API(cuDeviceGetP2PAttribute, int *value, CUdevice_P2PAttribute which, CUdevice device, CUdevice peer) {
    return ofDevice(__func__, device, [&](Device &) {
        if (!driver().device(peer) || device == peer) return CUDA_ERROR_INVALID_DEVICE;
        *value = which == CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ? 0 : 1;
        return CUDA_SUCCESS;
    });
}
