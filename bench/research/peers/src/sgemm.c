// Times OpenBLAS' SGEMM. Reads lines "n warm timed" and answers each with the median seconds of an n x n product. The product warms up for
// `warm` seconds, then runs again and again for `timed` seconds, at least FEWEST times. Threads: OPENBLAS_NUM_THREADS.
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

enum { FEWEST = 5, MOST = 4096 };

int main(void) {
    int n;
    double warm, timed;
    while (scanf("%d %lf %lf", &n, &warm, &timed) == 3) {
        float *m[3];
        for (int k = 0; k < 3; k++) {
            m[k] = aligned_alloc(64, (size_t)n * n * sizeof(float));
            for (long i = 0; i < (long)n * n; i++) m[k][i] = (float)rand() / RAND_MAX - 0.5f;
        }
        double t[MOST], begin = now();
        int runs = -1, more = 1; // below 0: they do not count
        while (more) {
            double start = now();
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, n, n, 1, m[0], n, m[1], n, 0, m[2], n);
            double end = now();
            if (runs >= 0) {
                t[runs++] = end - start;
                more = runs < MOST && (runs < FEWEST || end < begin + timed);
            } else if (end >= begin + warm) {
                runs = 0, begin = end;
            }
        }
        qsort(t, runs, sizeof(double), ascending);
        printf("%.9f\n", (t[(runs - 1) / 2] + t[runs / 2]) / 2);
        fflush(stdout);
        for (int k = 0; k < 3; k++) free(m[k]);
    }
}
