// Preloaded into PyTorch, it makes MKL choose its code by what the processor can do and not by who made it. On a processor that is
// not Intel's MKL has no AVX-512 otherwise.
int mkl_serv_intel_cpu_true(void) { return 1; }
int mkl_serv_intel_cpu(void) { return 1; }
