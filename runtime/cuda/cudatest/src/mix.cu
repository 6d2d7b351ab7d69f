// Test kernels. mix.ptx is this file compiled for compute_75; TestPTXIsThatOfTheSource asks for a new one after a change.

struct mix_args {
    unsigned char *dst;
    const unsigned char *src;
    unsigned long long bytes;
};

#ifndef PLIMSOLL_EMULATED
#define KERNEL(name, args) extern "C" __global__ void name(const args a)
#endif

// cudatest_mix makes dst[i] = 31*dst[i] + src[i] modulo 256, one byte a thread.
KERNEL(cudatest_mix, mix_args) {
    unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < a.bytes) a.dst[i] = (unsigned char)(31 * a.dst[i] + a.src[i]);
}
