// A cuDNN for tests: the calls that plimsoll makes, checked strictly, computed by plain loops on an emulated GPU's memory.
// FAKE_VERSION is what it calls itself; with FAKE_INCOMPLETE it lacks a function.
#include "fake.h"

namespace {
enum { ok = 0, bad = 2000, unsupported = 3000, failed = 5000, nhwc = 1, f32 = 0, bf16 = 9, algorithm = 1 };
struct Handle { void *stream; };
struct Tensor { int type, n, c, h, w; };
struct Filter { int type, o, c, h, w; };
struct Window { int ph, pw, sh, sw, dh, dw, groups = 1, math = 0; };

int span(int in, int pad, int kernel, int dilation, int stride) { return (in + 2 * pad - (kernel - 1) * dilation - 1) / stride + 1; }

// fit reports whether the four describe one convolution.
bool fit(const Tensor &x, const Filter &w, const Window &v, const Tensor &y) {
    return x.type == w.type && w.type == y.type && (v.math == 1 || (v.math == 3 && x.type == f32)) && x.n == y.n && w.o == y.c && w.c * v.groups == x.c &&
           w.o % v.groups == 0 && y.h == span(x.h, v.ph, w.h, v.dh, v.sh) && y.w == span(x.w, v.pw, w.w, v.dw, v.sw);
}

// need is the workspace: an odd number, more for larger results, none for one pixel.
size_t need(const Tensor &y) { return y.h * y.w == 1 ? 0 : (size_t)y.n * y.h * y.w * 3 + 1; }

int query(const Tensor &x, const Filter &w, const Window &v, const Tensor &y, int algo, size_t *bytes) {
    if (!fit(x, w, v, y) || algo != algorithm) return bad;
    if (w.h == 4) return unsupported + 7; // as if no kernel did that
    *bytes = need(y);
    return ok;
}

// each calls f with the offsets of every product of the convolution.
template <typename F> void each(const Tensor &x, const Filter &w, const Window &v, const Tensor &y, F f) {
    int width = y.c / v.groups;
    for (int n = 0; n < y.n; n++)
        for (int oh = 0; oh < y.h; oh++)
            for (int ow = 0; ow < y.w; ow++)
                for (int kh = 0; kh < w.h; kh++)
                    for (int kw = 0; kw < w.w; kw++) {
                        int h = oh * v.sh - v.ph + kh * v.dh, u = ow * v.sw - v.pw + kw * v.dw;
                        if (h < 0 || h >= x.h || u < 0 || u >= x.w) continue;
                        int64_t from = (((int64_t)n * x.h + h) * x.w + u) * x.c, to = (((int64_t)n * y.h + oh) * y.w + ow) * y.c;
                        for (int o = 0; o < y.c; o++)
                            for (int c = 0; c < w.c; c++)
                                f(from + o / width * w.c + c, (((int64_t)o * w.h + kh) * w.w + kw) * w.c + c, to + o);
                    }
}

enum { FORWARD, DATA, FILTER };

int run(Handle *handle, int pass, const float *alpha, const float *beta, Tensor x, void *px, Filter w, void *pw, Window v, Tensor y, void *py,
        int algo, void *space, size_t bytes) {
    size_t room;
    if (int status = query(x, w, v, y, algo, &room)) return status;
    if (bytes < room || (room > 0 && !aligned(space, 256)) || *alpha != 1 || (*beta != 0 && *beta != 1)) return bad;
    if (!aligned(px, 16) || !aligned(pw, 16) || !aligned(py, 16)) return bad;
    float b = *beta;
    bool half = x.type == bf16, rounded = !half && v.math == 1;
    Mistakes m;
    bool issued = launch(handle->stream, [=] {
        if (bytes > 0) memset(space, 0xff, bytes);
        int64_t size = pass == FORWARD ? (int64_t)y.n * y.h * y.w * y.c : pass == DATA ? (int64_t)x.n * x.h * x.w * x.c : (int64_t)w.o * w.h * w.w * w.c;
        double *sum = new double[size]();
        each(x, w, v, y, [&](int64_t i, int64_t j, int64_t k) {
            if (pass == FORWARD) sum[k] += factor(m, px, half, rounded, i) * factor(m, pw, half, rounded, j);
            else if (pass == DATA) sum[i] += factor(m, py, half, rounded, k) * factor(m, pw, half, rounded, j);
            else sum[j] += factor(m, px, half, rounded, i) * factor(m, py, half, rounded, k);
        });
        finish(m, pass == FORWARD ? py : pass == DATA ? px : pw, half, size, size, size, sum, b, pass == FORWARD ? px : py);
        delete[] sum;
    });
    return issued ? ok : failed;
}

template <typename T> int create(const char *name, T **p) {
    if (int status = asked(name)) return status;
    *p = new T();
    return ok;
}
template <typename T> int destroy(T *p) {
    delete p;
    return ok;
}
} // namespace

EXPORT size_t cudnnGetVersion() { return FAKE_VERSION; }
EXPORT const char *cudnnGetErrorString(int status) { return status == bad ? "FAKE_BAD_PARAM" : "FAKE_STATUS"; }
EXPORT int cudnnCreate(Handle **h) { return create("cudnnCreate", h); }
EXPORT int cudnnDestroy(Handle *h) {
    if (int status = asked("cudnnDestroy")) return status;
    return destroy(h);
}
EXPORT int cudnnSetStream(Handle *h, void *stream) { return h->stream = stream, asked("cudnnSetStream"); }
EXPORT int cudnnCreateTensorDescriptor(Tensor **t) { return create("cudnnCreateTensorDescriptor", t); }
EXPORT int cudnnDestroyTensorDescriptor(Tensor *t) { return destroy(t); }
EXPORT int cudnnSetTensor4dDescriptor(Tensor *t, int format, int type, int n, int c, int h, int w) {
    *t = {type, n, c, h, w};
    return format == nhwc && (type == f32 || type == bf16) && n > 0 && c > 0 && h > 0 && w > 0 ? asked("cudnnSetTensor4dDescriptor") : bad;
}
EXPORT int cudnnCreateFilterDescriptor(Filter **f) { return create("cudnnCreateFilterDescriptor", f); }
EXPORT int cudnnDestroyFilterDescriptor(Filter *f) { return destroy(f); }
EXPORT int cudnnSetFilter4dDescriptor(Filter *f, int type, int format, int o, int c, int h, int w) {
    *f = {type, o, c, h, w};
    return format == nhwc && (type == f32 || type == bf16) && o > 0 && c > 0 && h > 0 && w > 0 ? ok : bad;
}
EXPORT int cudnnCreateConvolutionDescriptor(Window **v) { return create("cudnnCreateConvolutionDescriptor", v); }
EXPORT int cudnnDestroyConvolutionDescriptor(Window *v) { return destroy(v); }
EXPORT int cudnnSetConvolution2dDescriptor(Window *v, int ph, int pw, int sh, int sw, int dh, int dw, int mode, int type) {
    *v = {ph, pw, sh, sw, dh, dw};
    return mode == 1 && type == f32 && ph >= 0 && pw >= 0 && sh > 0 && sw > 0 && dh > 0 && dw > 0 ? ok : bad;
}
EXPORT int cudnnSetConvolutionGroupCount(Window *v, int groups) { return v->groups = groups, groups > 0 ? ok : bad; }
EXPORT int cudnnSetConvolutionMathType(Window *v, int math) { return v->math = math, ok; }
EXPORT int cudnnGetConvolutionForwardWorkspaceSize(Handle *, Tensor *x, Filter *w, Window *v, Tensor *y, int algo, size_t *bytes) {
    return query(*x, *w, *v, *y, algo, bytes);
}
EXPORT int cudnnGetConvolutionBackwardDataWorkspaceSize(Handle *, Filter *w, Tensor *y, Window *v, Tensor *x, int algo, size_t *bytes) {
    return query(*x, *w, *v, *y, algo, bytes);
}
EXPORT int cudnnGetConvolutionBackwardFilterWorkspaceSize(Handle *, Tensor *x, Tensor *y, Window *v, Filter *w, int algo, size_t *bytes) {
    return query(*x, *w, *v, *y, algo, bytes);
}
#ifndef FAKE_INCOMPLETE
EXPORT int cudnnConvolutionForward(Handle *h, const float *alpha, Tensor *x, void *px, Filter *w, void *pw, Window *v, int algo, void *space, size_t bytes,
                                   const float *beta, Tensor *y, void *py) {
    if (int status = asked("cudnnConvolutionForward")) return status;
    return run(h, FORWARD, alpha, beta, *x, px, *w, pw, *v, *y, py, algo, space, bytes);
}
#endif
EXPORT int cudnnConvolutionBackwardData(Handle *h, const float *alpha, Filter *w, void *pw, Tensor *y, void *py, Window *v, int algo, void *space,
                                        size_t bytes, const float *beta, Tensor *x, void *px) {
    return run(h, DATA, alpha, beta, *x, px, *w, pw, *v, *y, py, algo, space, bytes);
}
EXPORT int cudnnConvolutionBackwardFilter(Handle *h, const float *alpha, Tensor *x, void *px, Tensor *y, void *py, Window *v, int algo, void *space,
                                          size_t bytes, const float *beta, Filter *w, void *pw) {
    return run(h, FILTER, alpha, beta, *x, px, *w, pw, *v, *y, py, algo, space, bytes);
}
