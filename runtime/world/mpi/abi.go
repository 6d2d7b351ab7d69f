//go:build cgo && unix

package mpi

// #cgo linux LDFLAGS: -ldl
// #include <dlfcn.h>
// #include <stdlib.h>
// #include <string.h>
// #include <time.h>
// #ifdef __linux__
// #include <sys/prctl.h>
// #endif
// #include "abi.h"
//
// // load returns the name of what is missing, or NULL.
// static const char *load(struct mpi *m, void *library) {
//     struct { void *to; const char *name; } all[] = {
//         {&m->abi_get_version, "MPI_Abi_get_version"}, {&m->get_library_version, "MPI_Get_library_version"},
//         {&m->init_thread, "MPI_Init_thread"}, {&m->finalize, "MPI_Finalize"}, {&m->error_string, "MPI_Error_string"},
//         {&m->comm_set_errhandler, "MPI_Comm_set_errhandler"}, {&m->comm_rank, "MPI_Comm_rank"}, {&m->comm_size, "MPI_Comm_size"},
//         {&m->comm_get_attr, "MPI_Comm_get_attr"}, {&m->isend, "MPI_Isend_c"}, {&m->improbe, "MPI_Improbe"},
//         {&m->get_count, "MPI_Get_count_c"}, {&m->imrecv, "MPI_Imrecv_c"}, {&m->test, "MPI_Test"},
//     };
//     for (size_t i = 0; i < sizeof all / sizeof *all; i++)
//         if (!(*(void **)all[i].to = dlsym(library, all[i].name))) return all[i].name;
//     return NULL;
// }
// struct version { int error, major, minor; };
// static struct version call_abi_version(const struct mpi *m) {
//     struct version v = {0, -1, -1};
//     v.error = m->abi_get_version(&v.major, &v.minor);
//     return v;
// }
// static int call_library_version(const struct mpi *m, char *text) {
//     int n = 0;
//     return m->get_library_version(text, &n);
// }
// static int call_error_string(const struct mpi *m, int error, char *text) {
//     int n = 0;
//     return m->error_string(error, text, &n);
// }
//
// // What a library does on signals it would do on the stacks of Go, which are too small for C.
// static void save_signals(struct signals *s) {
//     for (int i = 1; i < 65; i++) sigaction(i, NULL, &s->all[i]);
// }
// static void restore_signals(const struct signals *s) {
//     for (int i = 1; i < 65; i++)
//         if (s->all[i].sa_flags & SA_ONSTACK) sigaction(i, &s->all[i], NULL);
// }
//
// struct begun { int error, level, rank, size, most; };
// static struct begun call_init(const struct mpi *m, int level) {
//     struct begun b = {0};
//     int *most = NULL, found = 0;
//     if ((b.error = m->init_thread(NULL, NULL, level, &b.level))) return b;
//     if ((b.error = m->comm_set_errhandler(comm_world, errors_return))) return b;
//     if ((b.error = m->comm_rank(comm_world, &b.rank))) return b;
//     if ((b.error = m->comm_size(comm_world, &b.size))) return b;
//     b.error = m->comm_get_attr(comm_world, tag_ub, &most, &found);
//     b.most = found ? *most : 32767;
//     return b;
// }
// static struct outcome call_finalize(const struct mpi *m) {
//     struct outcome o = {m->finalize(), 1, 0, 0};
//     return o;
// }
// static struct outcome call_send(const struct mpi *m, const void *p, count n, int to, int tag) {
//     struct outcome o = {0, 1, 0, 0};
//     o.error = m->isend(p, n, byte_type, to, tag, comm_world, &o.handle);
//     return o;
// }
// static struct outcome call_find(const struct mpi *m, int from, int tag) {
//     struct outcome o = {0, 0, 0, 0};
//     struct status s;
//     memset(&s, 0, sizeof s);
//     o.error = m->improbe(from, tag, comm_world, &o.done, &o.handle, &s);
//     if (!o.error && o.done) o.error = m->get_count(&s, byte_type, &o.bytes);
//     return o;
// }
// static struct outcome call_take(const struct mpi *m, void *p, count n, handle message) {
//     struct outcome o = {0, 1, 0, 0};
//     o.error = m->imrecv(p, n, byte_type, &message, &o.handle);
//     return o;
// }
// static struct outcome call_test(const struct mpi *m, handle request) {
//     struct outcome o = {0, 0, request, 0};
//     struct status s;
//     memset(&s, 0, sizeof s);
//     o.error = m->test(&o.handle, &o.done, &s);
//     return o;
// }
//
// // sleep_for is exact to a few microseconds, where the system lets it.
// static void sleep_for(long ns) {
//     struct timespec t = {0, ns};
// #ifdef __linux__
//     static __thread int exact; // each thread of the system is told once; its own slack is 50 us
//     if (!exact) exact = prctl(PR_SET_TIMERSLACK, 1) == 0;
// #endif
//     nanosleep(&t, NULL);
// }
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"plimsoll/internal/dynlib"
	"plimsoll/runtime/world"
)

// library is a loaded MPI, of which a process has one.
type library struct {
	calls   *C.struct_mpi // C memory, for as long as the program runs
	path    string
	version string // as the library calls itself
	thread  chan func()
	begun   C.struct_begun // once MPI_Init_thread has returned
	tags    int            // that ways have had
	mu      sync.Mutex
	left    []*end // whose messages were given up: MPI has their memory for as long as the program runs
}

// finalized says that MPI's last call has been made.
var finalized atomic.Bool

// level is the requested level of thread support.
var level C.int = C.thread_multiple

// Load loads the library that $PLIMSOLL_MPI_ABI names, else libmpi_abi.so.1 from where the loader looks, and returns what makes the
// transport of a world. Errors: ErrLibrary.
func Load() (func(w *world.World) world.Transport, error) {
	path := os.Getenv(variable)
	if path == "" {
		path = soname
	}
	l, err := load(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w: %s", ErrLibrary, err, advice)
	}
	return func(w *world.World) world.Transport { return newFabric(w, l).HostBytes }, nil
}

func load(path string) (*library, error) {
	found, err := dynlib.Open(path)
	if err != nil {
		return nil, err
	}
	l := &library{path: path, calls: (*C.struct_mpi)(C.calloc(1, C.sizeof_struct_mpi)), thread: make(chan func())}
	if missing := C.load(l.calls, found); missing != nil {
		return nil, fmt.Errorf("%s has no %s: it is no library of MPI's standard ABI", path, C.GoString(missing))
	}
	if v := C.call_abi_version(l.calls); v.error != 0 || v.major != C.abi_major {
		return nil, fmt.Errorf("%s has version %d.%d of MPI's standard ABI, and 1 is needed (-1: its handles are its own)", path, v.major, v.minor)
	}
	text := (*C.char)(C.calloc(C.longest_version+1, 1))
	defer C.free(unsafe.Pointer(text))
	if e := C.call_library_version(l.calls, text); e != 0 {
		return nil, fmt.Errorf("%s: MPI_Get_library_version: error %d", path, e)
	}
	first, _, _ := strings.Cut(C.GoString(text), "\n")
	l.version = strings.Join(strings.Fields(first), " ")
	go l.serve()
	return l, nil
}

// serve makes calls on one thread of the system: the first and the last one of MPI, and all where the library lets no other thread in.
func (l *library) serve() {
	runtime.LockOSThread()
	for do := range l.thread {
		do()
	}
}

// on runs a function on the thread of serve.
func (l *library) on(do func()) {
	done := make(chan struct{})
	l.thread <- func() { do(); close(done) }
	<-done
}

// start calls MPI_Init_thread, which waits for all processes that the launcher has started.
func (l *library) start() error {
	l.on(func() {
		old := (*C.struct_signals)(C.calloc(1, C.sizeof_struct_signals))
		defer C.free(unsafe.Pointer(old))
		C.save_signals(old)
		l.begun = C.call_init(l.calls, level)
		C.restore_signals(old)
	})
	return l.failure("MPI_Init_thread", l.begun.error)
}

// finalize calls MPI_Finalize, which waits for all processes, so long.
func (l *library) finalize(patience time.Duration) error {
	done := make(chan C.struct_outcome, 1)
	go l.on(func() { done <- C.call_finalize(l.calls) })
	select {
	case o := <-done:
		finalized.Store(true)
		return l.failure("MPI_Finalize", o.error)
	case <-time.After(patience):
		return fmt.Errorf("mpi: MPI_Finalize has not returned within %v: a process has not come to it", patience)
	}
}

// make makes a call of an end, on a thread from which the library takes it.
func (l *library) make(e *end, call func(*end) C.struct_outcome) C.struct_outcome {
	if l.begun.level >= C.thread_multiple {
		return call(e)
	}
	return l.there(e, call)
}

// there is apart from make because it takes memory.
func (l *library) there(e *end, call func(*end) C.struct_outcome) (o C.struct_outcome) {
	l.on(func() { o = call(e) })
	return o
}

// The calls of an end: each returns at once.

func (e *end) send() C.struct_outcome {
	return C.call_send(e.calls, unsafe.Pointer(unsafe.SliceData(e.p)), C.count(len(e.p)), e.peer, e.tag)
}

func (e *end) find() C.struct_outcome { return C.call_find(e.calls, e.peer, e.tag) }

func (e *end) take() C.struct_outcome {
	return C.call_take(e.calls, unsafe.Pointer(unsafe.SliceData(e.p)), C.count(len(e.p)), e.handle)
}

func (e *end) test() C.struct_outcome { return C.call_test(e.calls, e.handle) }

// failure is the failure of a call, nil where there is none.
func (l *library) failure(call string, code C.int) error {
	if code == 0 {
		return nil
	}
	text := (*C.char)(C.calloc(C.longest_error+1, 1))
	defer C.free(unsafe.Pointer(text))
	if C.call_error_string(l.calls, code, text) != 0 {
		return fmt.Errorf("mpi: %s: error %d", call, code)
	}
	return fmt.Errorf("mpi: %s: %s", call, C.GoString(text))
}

const (
	spin    = 60 * time.Microsecond
	longest = 200 * time.Microsecond
)

// nap passes the time between two looks at what was begun: nothing at first, then an eighth of the time that has passed. So a message
// is noticed late by an eighth of the time that was waited for it, by no more than longest, and about 50 us of the system's own.
func nap(began time.Time) {
	waited := time.Since(began)
	if waited < spin {
		runtime.Gosched()
		return
	}
	C.sleep_for(C.long(min(waited/8, longest)))
}

// Exit ends the process, behind MPI_Finalize as C does: libraries and launchers count on what runs then, and Go's own exit skips it.
func Exit(code int) {
	if finalized.Load() {
		C.exit(C.int(code))
	}
	os.Exit(code)
}
