// A cuBLAS for tests: the calls that plimsoll makes, checked strictly, computed by plain loops on an emulated GPU's memory.
// FAKE_VERSION is its major version.
#include "fake.h"

namespace {
enum { ok = 0, bad = 7, failed = 13, f32 = 0, bf16 = 14, compute_32f = 68, compute_tf32 = 77, no_reduced_precision = 16 };
struct Handle { void *stream, *space; size_t bytes; int math; };
} // namespace

EXPORT int cublasGetProperty(int which, int *value) {
    const int version[] = {FAKE_VERSION, 6, 4};
    if (which < 0 || which > 2) return bad;
    *value = version[which];
    return asked("cublasGetProperty");
}
EXPORT const char *cublasGetStatusString(int status) { return status == bad ? "FAKE_INVALID_VALUE" : "FAKE_STATUS"; }
EXPORT int cublasCreate_v2(Handle **h) {
    if (int status = asked("cublasCreate")) return status;
    *h = new Handle();
    return ok;
}
EXPORT int cublasDestroy_v2(Handle *h) {
    if (int status = asked("cublasDestroy")) return status;
    delete h;
    return ok;
}
// As the manual says, a new stream takes the workspace away.
EXPORT int cublasSetStream_v2(Handle *h, void *stream) {
    h->stream = stream, h->space = nullptr, h->bytes = 0;
    return ok;
}
EXPORT int cublasSetWorkspace_v2(Handle *h, void *space, size_t bytes) {
    h->space = space, h->bytes = bytes;
    return aligned(space, 256) && bytes > 0 ? ok : bad;
}
EXPORT int cublasSetMathMode(Handle *h, int mode) { return h->math = mode, asked("cublasSetMathMode"); }

EXPORT int cublasGemmEx(Handle *h, int ta, int tb, int m, int n, int k, const float *alpha, const void *a, int atype, int lda, const void *b, int btype,
                        int ldb, const float *beta, void *c, int ctype, int ldc, int compute, int algorithm) {
    if (int status = asked("cublasGemmEx")) return status;
    if (h->math != no_reduced_precision || (compute != compute_32f && compute != compute_tf32) || algorithm != -1 || *alpha != 1 || (*beta != 0 && *beta != 1)) return bad;
    bool rounded = compute == compute_tf32;
    if (rounded && atype != f32) return bad;
    if (!h->space || atype != btype || (atype != f32 && atype != bf16) || (ctype != f32 && (ctype != bf16 || atype != bf16))) return bad;
    if (ta < 0 || ta > 1 || tb < 0 || tb > 1 || m < 1 || n < 1 || k < 1 || lda < (ta ? k : m) || ldb < (tb ? n : k) || ldc < m) return bad;
    size_t least = atype == f32 ? sizeof(float) : 16;
    if (!aligned(a, least) || !aligned(b, least) || !aligned(c, least)) return bad;
    float old = *beta;
    void *space = h->space;
    size_t bytes = h->bytes;
    Mistakes wrong;
    wrong.scaled |= wrong.narrow && (m == 16 || n == 16 || m < 4 || n < 4);
    bool issued = launch(h->stream, [=] {
        memset(space, 0xff, bytes);
        double *all = new double[(int64_t)m * n];
        for (int64_t j = 0; j < n; j++)
            for (int64_t i = 0; i < m; i++) {
                double sum = 0;
                for (int64_t l = 0; l < k; l++)
                    sum += factor(wrong, a, atype == bf16, rounded, ta ? l + i * lda : i + l * lda) * factor(wrong, b, btype == bf16, rounded, tb ? j + l * ldb : l + j * ldb);
                all[i + j * m] = sum;
            }
        finish(wrong, c, ctype == bf16, (int64_t)m * n, m, ldc, all, old, (void *)b);
        delete[] all;
    });
    return issued ? ok : failed;
}
