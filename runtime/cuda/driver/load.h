#ifndef PLIMSOLL_CUDA_LOAD_H
#define PLIMSOLL_CUDA_LOAD_H

// plimsoll_cuda_status is the result of plimsoll_cuda_load.
struct plimsoll_cuda_status {
    int loaded;        // the library was found
    int init;          // what its cuInit answered, a CUresult
    int version;       // 12040 is CUDA 12.4
    int missing;       // functions that it lacks
    char message[512]; // why it was not loaded, in dlopen's words; or the name of the first missing function
};

// Loads the library and directs all functions of cuda.h to it. Call it once, before any of them.
void plimsoll_cuda_load(const char *library, struct plimsoll_cuda_status *status);

// Returns the address of any symbol of the loaded library, or NULL.
void *plimsoll_cuda_symbol(const char *name);

#endif
