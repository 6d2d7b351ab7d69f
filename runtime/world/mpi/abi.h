// This file declares the part of MPI's standard ABI (MPI 5.0, chapter 20) that Plimsoll uses. Handles are constants or words, so they are
// words here.
#include <signal.h>
#include <stdint.h>

typedef uintptr_t handle;
typedef int64_t count;

enum { abi_major = 1, tag_ub = 501 };
enum { thread_multiple = 4096 };
enum { longest_error = 512, longest_version = 8192 };
static const handle comm_world = 0x101, errors_return = 0x143, byte_type = 0x247;

struct status { int source, tag, error, internal[5]; };

// mpi is a loaded library.
struct mpi {
    int (*abi_get_version)(int *major, int *minor);
    int (*get_library_version)(char *version, int *length);
    int (*init_thread)(int *argc, char ***argv, int required, int *provided);
    int (*finalize)(void);
    int (*error_string)(int error, char *text, int *length);
    int (*comm_set_errhandler)(handle comm, handle errhandler);
    int (*comm_rank)(handle comm, int *rank);
    int (*comm_size)(handle comm, int *size);
    int (*comm_get_attr)(handle comm, int key, void *value, int *flag);
    int (*isend)(const void *p, count n, handle type, int to, int tag, handle comm, handle *request);
    int (*improbe)(int source, int tag, handle comm, int *flag, handle *message, struct status *status);
    int (*get_count)(const struct status *status, handle type, count *n);
    int (*imrecv)(void *p, count n, handle type, handle *message, handle *request);
    int (*test)(handle *request, int *flag, struct status *status);
};

// outcome is the result of a call.
struct outcome {
    int error, done;
    handle handle; // of the request or message that goes on
    count bytes;   // of a message that was found
};

// signals keeps what a process does on signals.
struct signals { struct sigaction all[65]; };
