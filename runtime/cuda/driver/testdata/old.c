// A driver of CUDA 11.4, which is too old; and with -DNO_DEVICE, a driver that finds no GPU.

int cuInit(unsigned flags) {
    (void)flags;
#ifdef NO_DEVICE
    return 100;
#else
    return 0;
#endif
}

int cuDriverGetVersion(int *version) {
    *version = 11040;
    return 0;
}

int cuDeviceGetCount(int *count) {
    *count = 1;
    return 0;
}
