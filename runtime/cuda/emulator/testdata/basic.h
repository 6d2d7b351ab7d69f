// Arguments of the test kernels: one layout for C and for the kernels.
#ifndef PLIMSOLL_EMULATOR_BASIC_H
#define PLIMSOLL_EMULATOR_BASIC_H

// to[i] = factor*from[i] + add, for i < count; other kernels read the fields they need.
struct scale_args {
    float *to;
    const float *from;
    float factor, add;
    int count;
};

struct lanes_args {
    int *to;
};

struct count_args {
    int *integer;
    float *real;
    unsigned long long *wide;
    int *most;
};

#endif
