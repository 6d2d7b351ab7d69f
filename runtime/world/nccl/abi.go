//go:build cgo && linux

package nccl

// #cgo linux LDFLAGS: -ldl
// #include <dlfcn.h>
// #include <stdlib.h>
// #include "abi.h"
//
// struct symbol { void *to; const char *name; };
// static const char *find(const struct symbol *all, size_t n, void *library) {
//     for (size_t i = 0; i < n; i++)
//         if (!(*(void **)all[i].to = dlsym(library, all[i].name))) return all[i].name;
//     return NULL;
// }
// // load_nccl and load_driver return the name of what is missing, or NULL.
// static const char *load_nccl(struct nccl *l, void *library) {
//     struct symbol all[] = {
//         {&l->get_version, "ncclGetVersion"}, {&l->get_unique_id, "ncclGetUniqueId"}, {&l->init, "ncclCommInitRankConfig"},
//         {&l->async_error, "ncclCommGetAsyncError"}, {&l->error_string, "ncclGetErrorString"}, {&l->last_error, "ncclGetLastError"},
//         {&l->send, "ncclSend"}, {&l->receive, "ncclRecv"}, {&l->all_reduce, "ncclAllReduce"},
//         {&l->group_start, "ncclGroupStart"}, {&l->group_end, "ncclGroupEnd"}, {&l->finalize, "ncclCommFinalize"},
//         {&l->destroy, "ncclCommDestroy"}, {&l->abort, "ncclCommAbort"},
//     };
//     return find(all, sizeof all / sizeof *all, library);
// }
// static const char *load_driver(struct nccl *l, void *library) {
//     struct symbol all[] = {{&l->allocate, "cuMemAlloc_v2"}, {&l->release, "cuMemFree_v2"}, {&l->query, "cuStreamQuery"}};
//     return find(all, sizeof all / sizeof *all, library);
// }
// static int call_version(const struct nccl *l, int *version) { return l->get_version(version); }
// static int call_unique_id(const struct nccl *l, struct unique_id *id) { return l->get_unique_id(id); }
// static struct made call_init(const struct nccl *l, struct unique_id id, int ranks, int rank) {
//     struct config c = {sizeof c, config_magic, config_version, 0, undefined, 1, 2, NULL, undefined};
//     struct made m = {0, 0};
//     m.error = l->init(&m.what, ranks, id, rank, &c);
//     return m;
// }
// static int call_state(const struct nccl *l, handle comm) {
//     int state = success, error = l->async_error(comm, &state);
//     return error ? error : state;
// }
// static const char *call_error_string(const struct nccl *l, int error) { return l->error_string(error); }
// static const char *call_last_error(const struct nccl *l, handle comm) { return l->last_error(comm); }
// static int call_send(const struct nccl *l, handle p, size_t n, handle comm, handle stream) {
//     return l->send((const void *)p, n, type_byte, 1, comm, stream);
// }
// static int call_receive(const struct nccl *l, handle p, size_t n, handle comm, handle stream) {
//     return l->receive((void *)p, n, type_byte, 0, comm, stream);
// }
// // call_sums adds up parts of memory in one group, on one thread, whose group it is.
// static int call_sums(const struct nccl *l, handle base, const struct part *parts, size_t n, handle comm, handle stream) {
//     int first = l->group_start();
//     if (first) return first;
//     for (size_t i = 0; i < n; i++) {
//         void *p = (char *)base + parts[i].offset;
//         int error = l->all_reduce(p, p, (size_t)parts[i].bytes / 4, type_float, op_sum, comm, stream);
//         if (error != success && error != in_progress && !first) first = error;
//     }
//     int error = l->group_end();
//     return first ? first : error;
// }
// static int call_finalize(const struct nccl *l, handle comm) { return l->finalize(comm); }
// static int call_destroy(const struct nccl *l, handle comm) { return l->destroy(comm); }
// static int call_abort(const struct nccl *l, handle comm) { return l->abort(comm); }
// static struct made call_allocate(const struct nccl *l, size_t n) {
//     struct made m = {0, 0};
//     m.error = l->allocate(&m.what, n);
//     return m;
// }
// static int call_release(const struct nccl *l, handle p) { return l->release(p); }
// static int call_query(const struct nccl *l, handle stream) { return l->query(stream); }
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"plimsoll/internal/dynlib"
	"plimsoll/runtime/world"
)

// library is a loaded NCCL.
type library struct {
	calls   *C.struct_nccl // C memory, for as long as the program runs
	version int            // NCCL's code of it
}

// Load loads the library that $PLIMSOLL_NCCL names, else libnccl.so.2 from where the loader looks, and returns what makes the transport
// of a world. Errors: ErrLibrary.
func Load() (func(w *world.World) world.Transport, error) {
	path := os.Getenv(variable)
	if path == "" {
		path = soname
	}
	l, err := load(path)
	if err == nil {
		err = l.loadDriver()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w: %s", ErrLibrary, err, advice)
	}
	return func(w *world.World) world.Transport { return newFabric(w, l) }, nil
}

// load loads NCCL, which needs no driver for that.
func load(path string) (*library, error) {
	found, err := dynlib.Open(path)
	if err != nil {
		return nil, err
	}
	l := &library{calls: (*C.struct_nccl)(C.calloc(1, C.sizeof_struct_nccl))}
	if missing := C.load_nccl(l.calls, found); missing != nil {
		return nil, fmt.Errorf("%s has no %s: it is no NCCL, or one before 2.18", path, C.GoString(missing))
	}
	var version C.int
	if e := C.call_version(l.calls, &version); e != 0 {
		return nil, fmt.Errorf("%s: ncclGetVersion: error %d", path, e)
	}
	if l.version = int(version); l.version < C.oldest {
		return nil, fmt.Errorf("%s is NCCL %s, and 2.18 or later is needed", path, l.Version())
	}
	return l, nil
}

// loadDriver finds the driver's functions in the libcuda that the process has.
func (l *library) loadDriver() error {
	found, err := dynlib.Open("libcuda.so.1")
	if err != nil {
		return err
	}
	if missing := C.load_driver(l.calls, found); missing != nil {
		return fmt.Errorf("libcuda.so.1 has no %s", C.GoString(missing))
	}
	return nil
}

// Version returns the version of the library, "2.27.3".
func (l *library) Version() string {
	v := l.version
	if v < 10000 { // before 2.9
		return fmt.Sprintf("%d.%d.%d", v/1000, v/100%10, v%100)
	}
	return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100)
}

const idBytes = C.sizeof_struct_unique_id

// uniqueID makes the id of one communicator.
func (l *library) uniqueID() ([]byte, error) {
	var id C.struct_unique_id
	if e := C.call_unique_id(l.calls, &id); e != 0 {
		return nil, l.failure("ncclGetUniqueId", 0, e)
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&id)), idBytes), nil
}

// failure is the failure of a call, nil where there is none.
func (l *library) failure(call string, comm C.handle, code C.int) error {
	if code == C.success {
		return nil
	}
	text := C.GoString(C.call_error_string(l.calls, code))
	last := strings.Join(strings.Fields(C.GoString(C.call_last_error(l.calls, comm))), " ")
	if last = strings.TrimSuffix(last, "."); last != "" && last != text {
		text += ": " + last
	}
	if code == C.invalid_usage && shared(last) {
		text += ": two ranks use one GPU: give each rank one of its own, or set NCCL_MULTI_RANK_GPU_ENABLE=1 for all ranks with NCCL 2.30 or later (this is " +
			l.Version() + "), or take another transport"
	}
	return fmt.Errorf("nccl: %s: %s", call, text)
}

// shared reports whether NCCL says that a GPU has two ranks: before 2.30, and since.
func shared(text string) bool {
	return strings.Contains(text, "Duplicate GPU detected") || strings.Contains(text, "Multiple Ranks are using the same GPU")
}

// The calls of an end: each returns at once.

func (e *end) init(id []byte) C.int {
	m := C.call_init(e.calls, *(*C.struct_unique_id)(unsafe.Pointer(unsafe.SliceData(id))), e.ranks, e.rank)
	e.comm = m.what
	return m.error
}

func (e *end) state() C.int    { return C.call_state(e.calls, e.comm) }
func (e *end) finalize() C.int { return C.call_finalize(e.calls, e.comm) }
func (e *end) destroy() C.int  { return C.call_destroy(e.calls, e.comm) }

// abort does what it can: what NCCL says of it helps nobody.
func (e *end) abort() {
	e.mu.Lock()
	comm := e.comm
	e.comm = 0
	e.mu.Unlock()
	if comm != 0 {
		C.call_abort(e.calls, comm)
	}
}

// move gives NCCL one message.
func (e *end) move(ptr uintptr, n int64, stream uintptr) C.int {
	if e.rank == 0 {
		return C.call_send(e.calls, C.handle(ptr), C.size_t(n), e.comm, C.handle(stream))
	}
	return C.call_receive(e.calls, C.handle(ptr), C.size_t(n), e.comm, C.handle(stream))
}

// sum gives NCCL sums of parts of memory, as one launch.
func (e *end) sum(address uintptr, parts []part, stream uintptr) C.int {
	return C.call_sums(e.calls, C.handle(address), (*C.struct_part)(unsafe.Pointer(unsafe.SliceData(parts))), C.size_t(len(parts)), e.comm, C.handle(stream))
}

// These functions call the driver. The device's context is current.

func (e *end) allocate() error {
	m := C.call_allocate(e.calls, scratchBytes)
	e.scratch = uintptr(m.what)
	return driverError("cuMemAlloc", m.error)
}

func (e *end) release() error {
	return driverError("cuMemFree", C.call_release(e.calls, C.handle(e.scratch)))
}

// idle reports whether the default stream has nothing to do.
func (e *end) idle() (bool, error) {
	code := C.call_query(e.calls, 0)
	if code == C.not_ready {
		return false, nil
	}
	return true, driverError("cuStreamQuery", code)
}

func driverError(call string, code C.int) error {
	if code == 0 {
		return nil
	}
	return fmt.Errorf("nccl: %s: CUDA error %d", call, code)
}

const (
	spin    = 60 * time.Microsecond
	longest = time.Millisecond
)

// nap passes the time between two looks at what was begun: nothing at first, then an eighth of the time that has passed.
func nap(began time.Time) {
	waited := time.Since(began)
	if waited < spin {
		runtime.Gosched()
		return
	}
	time.Sleep(min(waited/8, longest))
}
