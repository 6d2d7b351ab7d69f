//go:build cuda && linux && amd64

// The slots that jump_amd64.S jumps through. Until a driver is loaded, and if there is none, they hold answers of our
// own. With these, cuInit succeeds, there are 0 devices, and everything else fails with a code that says why.

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "cuda.h"
#include "load.h"

static const char *const names[] = {
#define SYMBOL(name) #name,
#include "symbols.h"
#undef SYMBOL
};

enum { COUNT = sizeof names / sizeof *names };

static CUresult not_loaded(void) { return CUDA_ERROR_NOT_INITIALIZED; }

static CUresult no_device(void) { return CUDA_ERROR_NO_DEVICE; }

static CUresult not_found(void) { return CUDA_ERROR_NOT_FOUND; }

// gorgonia.org/cu calls cuInit before main and ends the process when it fails, so it must not. The driver's own is
// called by plimsoll_cuda_load: a program that uses no GPU does not even load the driver.
static CUresult init(unsigned flags) { return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }

static CUresult zero(int *count) {
    *count = 0;
    return CUDA_SUCCESS;
}

typedef CUresult (*function)(void);

__attribute__((visibility("hidden"))) function plimsoll_cuda_table[COUNT] = {
#define SYMBOL(name) not_loaded,
#include "symbols.h"
#undef SYMBOL
};

static void *library;

static function *slot(const char *name) {
    for (int i = 0; i < COUNT; i++)
        if (strcmp(names[i], name) == 0) return &plimsoll_cuda_table[i];
    return NULL;
}

__attribute__((constructor)) static void answer_init(void) { *slot("cuInit") = (function)init; }

static void answer_no_device(void) {
    for (int i = 0; i < COUNT; i++) plimsoll_cuda_table[i] = no_device;
    *slot("cuInit") = (function)init;
    *slot("cuDeviceGetCount") = *slot("cuDriverGetVersion") = (function)zero;
}

static void forward(struct plimsoll_cuda_status *status) {
    for (int i = 0; i < COUNT; i++) {
        plimsoll_cuda_table[i] = (function)dlsym(library, names[i]);
        if (plimsoll_cuda_table[i]) continue;
        plimsoll_cuda_table[i] = not_found;
        if (status->missing++ == 0) snprintf(status->message, sizeof status->message, "%s", names[i]);
    }
}

void plimsoll_cuda_load(const char *path, struct plimsoll_cuda_status *status) {
    *status = (struct plimsoll_cuda_status){.init = CUDA_ERROR_NO_DEVICE};
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    status->loaded = library != NULL;
    if (!library) {
        snprintf(status->message, sizeof status->message, "%s", dlerror());
        answer_no_device();
        return;
    }
    forward(status);
    status->init = cuInit(0);
    cuDriverGetVersion(&status->version);
    if (status->init != CUDA_SUCCESS) answer_no_device();
}

void *plimsoll_cuda_symbol(const char *name) { return library ? dlsym(library, name) : NULL; }
