// This file declares the part of NCCL 2.18 and later, and of CUDA's driver, that Plimsoll uses, in Plimsoll's own words. Communicators and
// streams are words here.
#include <limits.h>
#include <stddef.h>
#include <stdint.h>

typedef uintptr_t handle;

enum { success = 0, invalid_argument = 4, invalid_usage = 5, remote_error = 6, in_progress = 7 };
enum { type_byte = 1, type_float = 7, op_sum = 0 }; // ncclUint8, ncclFloat32, ncclSum
enum { undefined = INT_MIN, config_magic = (int)0xcafebeef, config_version = 21800, oldest = 21800 };
enum { not_ready = 600 }; // CUDA_ERROR_NOT_READY

struct unique_id { char bytes[128]; };

// config has the layout of ncclConfig_t in version 2.18. Later versions add fields at its end. They take fields beyond its size for
// undefined.
struct config {
    size_t size;
    unsigned magic, version;
    int blocking, cluster, least, most; // CTAs
    const char *network;
    int share;
};

// nccl is a loaded library, and what is needed of the driver.
struct nccl {
    int (*get_version)(int *version);
    int (*get_unique_id)(struct unique_id *id);
    int (*init)(handle *comm, int ranks, struct unique_id id, int rank, struct config *config);
    int (*async_error)(handle comm, int *error);
    const char *(*error_string)(int error);
    const char *(*last_error)(handle comm);
    int (*send)(const void *p, size_t n, int type, int peer, handle comm, handle stream);
    int (*receive)(void *p, size_t n, int type, int peer, handle comm, handle stream);
    int (*all_reduce)(const void *from, void *to, size_t n, int type, int op, handle comm, handle stream);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*finalize)(handle comm);
    int (*destroy)(handle comm);
    int (*abort)(handle comm);

    int (*allocate)(handle *p, size_t n);
    int (*release)(handle p);
    int (*query)(handle stream);
};

// part is numbers in memory: bytes, from its beginning on.
struct part { int64_t offset, bytes; };

// made is the result of a call that makes something.
struct made { int error; handle what; };
