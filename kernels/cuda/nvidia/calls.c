//go:build cuda && linux && amd64

#define _GNU_SOURCE
#include "calls.h"

#include <dlfcn.h>

struct symbol {
    void *to; // a pointer to a function
    const char *name;
};

static const char *load(void *library, const struct symbol *all, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!(*(void **)all[i].to = dlsym(library, all[i].name))) return all[i].name;
    return NULL;
}

const char *nvidia_load_dnn(struct dnn *d, void *library) {
    const struct symbol all[] = {
        {&d->version, "cudnnGetVersion"},
        {&d->text, "cudnnGetErrorString"},
        {&d->create, "cudnnCreate"},
        {&d->destroy, "cudnnDestroy"},
        {&d->set_stream, "cudnnSetStream"},
        {&d->create_tensor, "cudnnCreateTensorDescriptor"},
        {&d->destroy_tensor, "cudnnDestroyTensorDescriptor"},
        {&d->set_tensor, "cudnnSetTensor4dDescriptor"},
        {&d->create_filter, "cudnnCreateFilterDescriptor"},
        {&d->destroy_filter, "cudnnDestroyFilterDescriptor"},
        {&d->set_filter, "cudnnSetFilter4dDescriptor"},
        {&d->create_convolution, "cudnnCreateConvolutionDescriptor"},
        {&d->destroy_convolution, "cudnnDestroyConvolutionDescriptor"},
        {&d->set_groups, "cudnnSetConvolutionGroupCount"},
        {&d->set_math, "cudnnSetConvolutionMathType"},
        {&d->set_convolution, "cudnnSetConvolution2dDescriptor"},
        {&d->forward_bytes, "cudnnGetConvolutionForwardWorkspaceSize"},
        {&d->data_bytes, "cudnnGetConvolutionBackwardDataWorkspaceSize"},
        {&d->filter_bytes, "cudnnGetConvolutionBackwardFilterWorkspaceSize"},
        {&d->forward, "cudnnConvolutionForward"},
        {&d->data, "cudnnConvolutionBackwardData"},
        {&d->filter, "cudnnConvolutionBackwardFilter"},
    };
    return load(library, all, sizeof all / sizeof *all);
}

const char *nvidia_load_blas(struct blas *b, void *library) {
    const struct symbol all[] = {
        {&b->property, "cublasGetProperty"},      {&b->text, "cublasGetStatusString"},
        {&b->create, "cublasCreate_v2"},          {&b->destroy, "cublasDestroy_v2"},
        {&b->set_stream, "cublasSetStream_v2"},   {&b->set_math, "cublasSetMathMode"},
        {&b->set_workspace, "cublasSetWorkspace_v2"}, {&b->gemm, "cublasGemmEx"},
    };
    return load(library, all, sizeof all / sizeof *all);
}

const char *nvidia_file(void *library, const char *symbol) {
    Dl_info info;
    void *p = dlsym(library, symbol);
    return p && dladdr(p, &info) ? info.dli_fname : NULL;
}

// CALL returns the status of a call that fails.
#define CALL(text, expression)                                  \
    do {                                                        \
        int status = (expression);                              \
        if (status) return (struct result){status, text};       \
    } while (0)

struct created nvidia_dnn_create(const struct dnn *d) {
    struct created c = {{0, "cudnnCreate"}, NULL};
    c.result.status = d->create(&c.made);
    return c;
}

static struct result query(const struct dnn *d, struct convolution *c) {
    size_t *bytes = &c->workspace;
    switch (c->pass) {
    case FORWARD:
        CALL("cudnnGetConvolutionForwardWorkspaceSize",
             d->forward_bytes(c->library, c->x, c->filter, c->window, c->y, DNN_ALGORITHM, bytes));
        return (struct result){0, NULL};
    case BACKWARD_DATA:
        CALL("cudnnGetConvolutionBackwardDataWorkspaceSize",
             d->data_bytes(c->library, c->filter, c->y, c->window, c->x, DNN_ALGORITHM, bytes));
        return (struct result){0, NULL};
    default:
        CALL("cudnnGetConvolutionBackwardFilterWorkspaceSize",
             d->filter_bytes(c->library, c->x, c->y, c->window, c->filter, DNN_ALGORITHM, bytes));
        return (struct result){0, NULL};
    }
}

struct result nvidia_dnn_describe(const struct dnn *d, struct convolution *c) {
    int type = c->bfloat16 ? DNN_BFLOAT16 : DNN_FLOAT;
    CALL("cudnnCreateTensorDescriptor", d->create_tensor(&c->x));
    CALL("cudnnCreateTensorDescriptor", d->create_tensor(&c->y));
    CALL("cudnnCreateFilterDescriptor", d->create_filter(&c->filter));
    CALL("cudnnCreateConvolutionDescriptor", d->create_convolution(&c->window));
    CALL("cudnnSetTensor4dDescriptor", d->set_tensor(c->x, DNN_NHWC, type, c->n, c->c, c->h, c->w));
    CALL("cudnnSetTensor4dDescriptor", d->set_tensor(c->y, DNN_NHWC, type, c->n, c->o, c->oh, c->ow));
    CALL("cudnnSetFilter4dDescriptor", d->set_filter(c->filter, type, DNN_NHWC, c->o, c->c / c->groups, c->kh, c->kw));
    CALL("cudnnSetConvolution2dDescriptor",
         d->set_convolution(c->window, c->ph, c->pw, c->sh, c->sw, c->dh, c->dw, DNN_CROSS_CORRELATION, DNN_FLOAT));
    CALL("cudnnSetConvolutionGroupCount", d->set_groups(c->window, c->groups));
    CALL("cudnnSetConvolutionMathType", d->set_math(c->window, c->bfloat16 || c->tf32 ? DNN_TENSOR_OP_MATH : DNN_FMA_MATH));
    return query(d, c);
}

static void *at(address a) { return (void *)(size_t)a; }

struct result nvidia_dnn_run(const struct dnn *d, const struct convolution *c, address x, address w, address y, address workspace, size_t bytes,
                             int add, void *stream) {
    const float one = 1, beta = add ? 1 : 0;
    void *s = bytes ? at(workspace) : NULL;
    CALL("cudnnSetStream", d->set_stream(c->library, stream));
    switch (c->pass) {
    case FORWARD:
        CALL("cudnnConvolutionForward", d->forward(c->library, &one, c->x, at(x), c->filter, at(w), c->window, DNN_ALGORITHM, s, bytes,
                                                   &beta, c->y, at(y)));
        return (struct result){0, NULL};
    case BACKWARD_DATA:
        CALL("cudnnConvolutionBackwardData", d->data(c->library, &one, c->filter, at(w), c->y, at(y), c->window, DNN_ALGORITHM, s,
                                                     bytes, &beta, c->x, at(x)));
        return (struct result){0, NULL};
    default:
        CALL("cudnnConvolutionBackwardFilter", d->filter(c->library, &one, c->x, at(x), c->y, at(y), c->window, DNN_ALGORITHM, s,
                                                         bytes, &beta, c->filter, at(w)));
        return (struct result){0, NULL};
    }
}

void nvidia_dnn_forget(const struct dnn *d, struct convolution *c) {
    if (c->x) d->destroy_tensor(c->x);
    if (c->y) d->destroy_tensor(c->y);
    if (c->filter) d->destroy_filter(c->filter);
    if (c->window) d->destroy_convolution(c->window);
    c->x = c->y = c->filter = c->window = NULL;
}

struct created nvidia_blas_create(const struct blas *b) {
    struct created c = {{0, "cublasCreate"}, NULL};
    if ((c.result.status = b->create(&c.made))) return c;
    c.result.call = "cublasSetMathMode";
    if ((c.result.status = b->set_math(c.made, BLAS_NO_REDUCED_PRECISION))) b->destroy(c.made);
    return c;
}

// nvidia_blas_run gives the workspace after the stream: setting a stream takes the workspace away.
struct result nvidia_blas_run(const struct blas *b, handle h, const struct product *p, address a, address x, address c, address workspace, size_t bytes,
                              int add, void *stream) {
    const float one = 1, beta = add ? 1 : 0;
    CALL("cublasSetStream", b->set_stream(h, stream));
    CALL("cublasSetWorkspace", b->set_workspace(h, at(workspace), bytes));
    CALL("cublasGemmEx", b->gemm(h, p->ta, p->tb, p->m, p->n, p->k, &one, at(a), p->in, p->lda, at(x), p->in, p->ldb, &beta, at(c), p->out,
                                 p->ldc, p->compute, BLAS_ALGORITHM_DEFAULT));
    return (struct result){0, NULL};
}

size_t nvidia_dnn_version(const struct dnn *d) { return d->version(); }
const char *nvidia_dnn_text(const struct dnn *d, int status) { return d->text(status); }
int nvidia_dnn_destroy(const struct dnn *d, handle h) { return d->destroy(h); }
int nvidia_blas_property(const struct blas *b, int which, int *value) { return b->property(which, value); }
const char *nvidia_blas_text(const struct blas *b, int status) { return b->text(status); }
int nvidia_blas_destroy(const struct blas *b, handle h) { return b->destroy(h); }
