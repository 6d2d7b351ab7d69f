// These functions let tests control and inspect the emulated driver, beside cuda.h. Find them with dlsym in the emulator's libcuda.so.1; a
// real driver does not have them.
//
// The environment can ask for the same. The driver reads it at the first call.
//
//   PLIMSOLL_EMULATOR_DEVICES=2            number of devices (1).
//   PLIMSOLL_EMULATOR_MEMORY=1073741824    bytes of each device (4 GiB).
//   PLIMSOLL_EMULATOR_CAPABILITY=89        compute capability of each device, ten times (90). All else stays as capability 9.0 has it.
//   PLIMSOLL_EMULATOR_CHAOS=7              seed of random delays before each piece of work (0: none).
//   PLIMSOLL_EMULATOR_PROCESSORS=2         threads that run the blocks of a launch (as many as the host has, at most 4).
//   PLIMSOLL_EMULATOR_POISON=1             fill new memory with 0xff bytes, NaNs (0; 1 in the checked build).
//   PLIMSOLL_EMULATOR_STRICT=1             once there is a finding, calls fail with CUDA_ERROR_UNKNOWN (0).
//   PLIMSOLL_EMULATOR_REPORT=file          findings are appended to the file, a line each, when they are found.
//   PLIMSOLL_EMULATOR_FAIL=cuMemAlloc:2=2  failures to inject, see plimsollEmulatorFail.

#ifndef PLIMSOLL_EMULATOR_H
#define PLIMSOLL_EMULATOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Makes calls fail. The text is NAME:N=ERROR, several separated by commas; ERROR is a CUresult. The N-th call, counted from 1 and from now,
// of the function NAME (without _v2) returns it and does nothing. If NAME is "launch", "copy", "fill" or "host", the N-th piece of work of
// that kind that is issued ends with it instead of running. As on a real GPU, a later call reports that error, and the context is dead.
// CUDA_ERROR_DEVICE_UNAVAILABLE (46) and CUDA_ERROR_ECC_UNCORRECTABLE (214) end the device with all of its contexts. Returns 0, or -1 for a
// text that it does not understand.
int plimsollEmulatorFail(const char *faults);

// Forgets all failures that have not happened.
void plimsollEmulatorFailClear(void);

// Returns how often the function was called, or work of the kind was issued (see above), since the process started. If the name is
// "kernel NAME", it returns how often that kernel was launched or captured.
uint64_t plimsollEmulatorCount(const char *name);

// The findings so far, a line each; empty when there is none. Copies at most bytes-1 of them and a zero into text
// (which may be null), and returns the length of the whole text.
size_t plimsollEmulatorFindings(char *text, size_t bytes);

// Forgets the findings.
void plimsollEmulatorFindingsClear(void);

// Reports what is alive now as leaks: contexts, and what they hold. For the end of a program that does not destroy its
// contexts; a Go program ends without running anything here by itself.
void plimsollEmulatorFinish(void);

// From now on a launch of more blocks than this number runs only its last ones. So tests can use tensors of a size that no emulation could
// compute. If the number is 0, launches run as they are.
void plimsollEmulatorLastBlocks(uint64_t blocks);

// 1 when this is the checked build, which watches the accesses of kernels.
int plimsollEmulatorChecked(void);

#ifdef __cplusplus
}
#endif

#endif
