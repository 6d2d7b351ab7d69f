//go:build cgo && linux

package nccl

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// comparison compiles when NVIDIA's nccl.h and our abi.h say the same. Names of ours that are common words are given another meaning
// for the time that NVIDIA's header is read.
const comparison = `
#include <stddef.h>
#include "nccl.h"
#define handle plimsoll_handle
#include "abi.h"
#define SAME(a, b) _Static_assert((a) == (b), #a " is not " #b)
#define FIELD(theirs, ours) SAME(offsetof(ncclConfig_t, theirs), offsetof(struct config, ours)); \
	SAME(sizeof(((ncclConfig_t *)0)->theirs), sizeof(((struct config *)0)->ours))
SAME(ncclSuccess, success);
SAME(ncclInvalidArgument, invalid_argument);
SAME(ncclInvalidUsage, invalid_usage);
SAME(ncclRemoteError, remote_error);
SAME(ncclInProgress, in_progress);
SAME(ncclUint8, type_byte);
SAME(ncclFloat32, type_float);
SAME(ncclSum, op_sum);
SAME(NCCL_CONFIG_UNDEF_INT, undefined);
SAME(NCCL_API_MAGIC, (unsigned)config_magic);
SAME(NCCL_VERSION(2, 18, 0), config_version);
SAME(sizeof(ncclUniqueId), sizeof(struct unique_id));
SAME(sizeof(ncclComm_t), sizeof(handle));
FIELD(size, size);
FIELD(magic, magic);
FIELD(version, version);
FIELD(blocking, blocking);
FIELD(cgaClusterSize, cluster);
FIELD(minCTAs, least);
FIELD(maxCTAs, most);
FIELD(netName, network);
FIELD(splitShare, share);
_Static_assert(sizeof(ncclConfig_t) >= sizeof(struct config), "a shorter configuration");
ncclResult_t (*version)(int *) = ncclGetVersion;
ncclResult_t (*id)(ncclUniqueId *) = ncclGetUniqueId;
ncclResult_t (*init)(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *) = ncclCommInitRankConfig;
ncclResult_t (*async_error)(ncclComm_t, ncclResult_t *) = ncclCommGetAsyncError;
const char *(*error_string)(ncclResult_t) = ncclGetErrorString;
const char *(*last_error)(ncclComm_t) = ncclGetLastError;
ncclResult_t (*send)(const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) = ncclSend;
ncclResult_t (*receive)(void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) = ncclRecv;
ncclResult_t (*all_reduce)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t) = ncclAllReduce;
ncclResult_t (*group_start)(void) = ncclGroupStart, (*group_end)(void) = ncclGroupEnd;
ncclResult_t (*finalize)(ncclComm_t) = ncclCommFinalize, (*destroy)(ncclComm_t) = ncclCommDestroy, (*abort_it)(ncclComm_t) = ncclCommAbort;
`

// compareHeader compares what abi.h declares with NVIDIA's header in a folder.
func compareHeader(t *testing.T, include, version string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(include, "nccl.h")); err != nil {
		t.Log("no nccl.h beside the library to compare with:", err)
		return
	}
	folder := t.TempDir()
	for name, text := range map[string]string{
		"cuda_runtime.h": "typedef struct CUstream_st *cudaStream_t; typedef struct CUevent_st *cudaEvent_t;\n#define CUDART_VERSION 12000\n",
		"cuda_fp16.h":    "", "cuda_bf16.h": "", "comparison.c": comparison,
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command(cmp.Or(os.Getenv("CC"), "cc"), "-std=gnu11", "-fsyntax-only", "-Werror=incompatible-pointer-types", "-I"+folder, "-I"+include, "-I.", filepath.Join(folder, "comparison.c"))
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("abi.h differs from the nccl.h of %s: %s", version, out)
	}
}
