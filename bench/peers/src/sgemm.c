// Times OpenBLAS' SGEMM. Reads lines "n runs" and answers each with the median seconds of the runs of an n x n product.
// Threads: OPENBLAS_NUM_THREADS.
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(void) {
    int n, runs;
    while (scanf("%d %d", &n, &runs) == 2) {
        float *m[3];
        for (int k = 0; k < 3; k++) {
            m[k] = aligned_alloc(64, (size_t)n * n * sizeof(float));
            for (long i = 0; i < (long)n * n; i++) m[k][i] = (float)rand() / RAND_MAX - 0.5f;
        }
        double *t = malloc(runs * sizeof(double));
        for (int i = -1; i < runs; i++) {
            double start = now();
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, n, n, 1, m[0], n, m[1], n, 0, m[2], n);
            if (i >= 0) t[i] = now() - start;
        }
        qsort(t, runs, sizeof(double), ascending);
        printf("%.9f\n", (t[(runs - 1) / 2] + t[runs / 2]) / 2);
        fflush(stdout);
        for (int k = 0; k < 3; k++) free(m[k]);
        free(t);
    }
}
