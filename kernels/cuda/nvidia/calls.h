// The calls of cuDNN and cuBLAS that we use, through tables that are filled when a library is loaded.
#ifndef PLIMSOLL_NVIDIA_CALLS_H
#define PLIMSOLL_NVIDIA_CALLS_H

#include <stddef.h>

// Values of cuDNN's and cuBLAS's enumerations. A status of 0 is success.
enum {
    DNN_NHWC = 1,              // tensor format
    DNN_FLOAT = 0,             // data types
    DNN_BFLOAT16 = 9,
    DNN_CROSS_CORRELATION = 1, // convolution mode
    DNN_TENSOR_OP_MATH = 1,    // math types: tensor cores, of float32 in TF32; and float32 without TF32
    DNN_FMA_MATH = 3,
    DNN_ALGORITHM = 1,         // forward IMPLICIT_PRECOMP_GEMM, backward data ALGO_1, backward filter ALGO_1
    DNN_NOT_SUPPORTED = 3000,  // to 3999

    BLAS_N = 0, // operations: as it is, transposed
    BLAS_T = 1,
    BLAS_R_32F = 0, // data types
    BLAS_R_16BF = 14,
    BLAS_COMPUTE_32F = 68,
    BLAS_COMPUTE_32F_FAST_TF32 = 77,
    BLAS_ALGORITHM_DEFAULT = -1,
    BLAS_NO_REDUCED_PRECISION = 16, // math mode: default, and sums of parts in float32
};

typedef void *handle; // of cuDNN, cuBLAS, and of their descriptors

struct dnn {
    size_t (*version)(void);
    const char *(*text)(int);
    int (*create)(handle *), (*destroy)(handle), (*set_stream)(handle, void *);
    int (*create_tensor)(handle *), (*destroy_tensor)(handle), (*set_tensor)(handle, int, int, int, int, int, int);
    int (*create_filter)(handle *), (*destroy_filter)(handle), (*set_filter)(handle, int, int, int, int, int, int);
    int (*create_convolution)(handle *), (*destroy_convolution)(handle), (*set_groups)(handle, int), (*set_math)(handle, int);
    int (*set_convolution)(handle, int, int, int, int, int, int, int, int);
    int (*forward_bytes)(handle, handle, handle, handle, handle, int, size_t *);
    int (*data_bytes)(handle, handle, handle, handle, handle, int, size_t *);
    int (*filter_bytes)(handle, handle, handle, handle, handle, int, size_t *);
    int (*forward)(handle, const void *, handle, const void *, handle, const void *, handle, int, void *, size_t, const void *, handle, void *);
    int (*data)(handle, const void *, handle, const void *, handle, const void *, handle, int, void *, size_t, const void *, handle, void *);
    int (*filter)(handle, const void *, handle, const void *, handle, const void *, handle, int, void *, size_t, const void *, handle, void *);
};

struct blas {
    int (*property)(int, int *);
    const char *(*text)(int);
    int (*create)(handle *), (*destroy)(handle), (*set_stream)(handle, void *), (*set_math)(handle, int);
    int (*set_workspace)(handle, void *, size_t);
    int (*gemm)(handle, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int, const void *, void *, int, int, int, int);
};

// convolution is one shape: sizes, then what describe makes of them.
struct convolution {
    int n, h, w, c, oh, ow, o, kh, kw, sh, sw, ph, pw, dh, dw, groups;
    int bfloat16, tf32;
    int pass; // FORWARD...
    handle library, x, filter, y, window;
    size_t workspace;
};
enum { FORWARD, BACKWARD_DATA, BACKWARD_FILTER };

// product is C = op(A) op(B) + beta C, column by column: m x n, with k inner indices.
struct product {
    int ta, tb, m, n, k, lda, ldb, ldc;
    int in, out; // data types
    int compute; // type
};

// Addresses are device addresses.
typedef unsigned long long address;

// nvidia_load_dnn and nvidia_load_blas return the name of what a library lacks, or NULL.
const char *nvidia_load_dnn(struct dnn *d, void *library);
const char *nvidia_load_blas(struct blas *b, void *library);

// nvidia_file returns the file that a symbol of a loaded library comes from.
const char *nvidia_file(void *library, const char *symbol);

// result is the status of the call that failed and its name, or 0.
struct result {
    int status;
    const char *call;
};
struct created {
    struct result result;
    handle made;
};
struct created nvidia_dnn_create(const struct dnn *d);
struct result nvidia_dnn_describe(const struct dnn *d, struct convolution *c);
struct result nvidia_dnn_run(const struct dnn *d, const struct convolution *c, address x, address w, address y, address workspace, size_t bytes,
                             int add, void *stream);
void nvidia_dnn_forget(const struct dnn *d, struct convolution *c);
struct created nvidia_blas_create(const struct blas *b);
struct result nvidia_blas_run(const struct blas *b, handle h, const struct product *p, address a, address x, address c, address workspace, size_t bytes,
                              int add, void *stream);

// Calls of one function.
size_t nvidia_dnn_version(const struct dnn *d);
const char *nvidia_dnn_text(const struct dnn *d, int status);
int nvidia_dnn_destroy(const struct dnn *d, handle h);
int nvidia_blas_property(const struct blas *b, int which, int *value);
const char *nvidia_blas_text(const struct blas *b, int status);
int nvidia_blas_destroy(const struct blas *b, handle h);

#endif
