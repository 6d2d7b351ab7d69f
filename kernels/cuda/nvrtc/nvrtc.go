//go:build cuda && linux && amd64

package nvrtc

// #include <dlfcn.h>
// #include <stdlib.h>
//
// typedef void *program;
// struct nvrtc {
//     int (*version)(int *, int *);
//     int (*create)(program *, const char *, const char *, int, const char *const *, const char *const *);
//     int (*compile)(program, int, const char *const *);
//     int (*ptx_size)(program, size_t *), (*ptx)(program, char *);
//     int (*log_size)(program, size_t *), (*log)(program, char *);
//     int (*destroy)(program *);
//     const char *(*text)(int);
// };
//
// // load returns the name of what is missing, or NULL.
// static const char *load(struct nvrtc *n, void *library) {
//     struct { void *to; const char *name; } all[] = {
//         {&n->version, "nvrtcVersion"}, {&n->create, "nvrtcCreateProgram"}, {&n->compile, "nvrtcCompileProgram"},
//         {&n->ptx_size, "nvrtcGetPTXSize"}, {&n->ptx, "nvrtcGetPTX"},
//         {&n->log_size, "nvrtcGetProgramLogSize"}, {&n->log, "nvrtcGetProgramLog"},
//         {&n->destroy, "nvrtcDestroyProgram"}, {&n->text, "nvrtcGetErrorString"},
//     };
//     for (size_t i = 0; i < sizeof all / sizeof *all; i++)
//         if (!(*(void **)all[i].to = dlsym(library, all[i].name))) return all[i].name;
//     return NULL;
// }
// struct version { int result, major, minor; };
// static struct version call_version(const struct nvrtc *n) {
//     struct version v = {0, 0, 0};
//     v.result = n->version(&v.major, &v.minor);
//     return v;
// }
// struct created { int result; program p; };
// static struct created call_create(const struct nvrtc *n, const char *source, const char *name, int headers, const char *const *texts,
//     const char *const *names) {
//     struct created c = {0, NULL};
//     c.result = n->create(&c.p, source, name, headers, texts, names);
//     return c;
// }
// static int call_compile(const struct nvrtc *n, program p, int count, const char *const *options) { return n->compile(p, count, options); }
// static int call_ptx_size(const struct nvrtc *n, program p, size_t *bytes) { return n->ptx_size(p, bytes); }
// static int call_ptx(const struct nvrtc *n, program p, char *to) { return n->ptx(p, to); }
// static int call_log_size(const struct nvrtc *n, program p, size_t *bytes) { return n->log_size(p, bytes); }
// static int call_log(const struct nvrtc *n, program p, char *to) { return n->log(p, to); }
// static void call_destroy(const struct nvrtc *n, program p) { n->destroy(&p); }
// static const char *call_text(const struct nvrtc *n, int result) { return n->text(result); }
import "C"

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unsafe"

	"plimsoll/internal/dynlib"
)

// Compiler is a loaded NVRTC.
type Compiler struct {
	calls        *C.struct_nvrtc // C memory, for as long as the program runs
	Path         string          // of the library
	Major, Minor int             // its version
}

// Load loads the library from a file, or, by its bare name, from where the loader looks.
func Load(path string) (*Compiler, error) {
	library, err := dynlib.Open(path)
	if err != nil {
		return nil, fmt.Errorf("nvrtc: %w", err)
	}
	c := &Compiler{Path: path, calls: (*C.struct_nvrtc)(C.calloc(1, C.sizeof_struct_nvrtc))}
	if missing := C.load(c.calls, library); missing != nil {
		return nil, fmt.Errorf("nvrtc: %s has no %s: it is no NVRTC, or too old", path, C.GoString(missing))
	}
	v := C.call_version(c.calls)
	c.Major, c.Minor = int(v.major), int(v.minor)
	return c, c.result("nvrtcVersion", v.result)
}

// Source is a program: its text, and that of the headers that it includes, by name.
type Source struct {
	Name, Text string
	Headers    map[string]string
}

// PTX compiles for a virtual architecture ("compute_75"), and returns assembly that drivers compile for their GPU.
func (c *Compiler) PTX(s Source, architecture string, options ...string) ([]byte, error) {
	p, done, err := c.compile(s, append(options, "--gpu-architecture="+architecture))
	defer done()
	if err != nil {
		return nil, err
	}
	text, err := c.fetch("nvrtcGetPTX", p,
		func(n *C.size_t) C.int { return C.call_ptx_size(c.calls, p, n) }, func(to *C.char) C.int { return C.call_ptx(c.calls, p, to) })
	return []byte(strings.TrimRight(string(text), "\x00")), err
}

// compile returns a compiled program, and what frees it. An error has the compiler's messages.
func (c *Compiler) compile(s Source, options []string) (p C.program, done func(), err error) {
	names := slices.Sorted(maps.Keys(s.Headers))
	texts := make([]string, len(names))
	for i, n := range names {
		texts[i] = s.Headers[n]
	}
	options = append(options, "--std=c++17", "--device-as-default-execution-space")
	all := newStrings(slices.Concat([]string{s.Text, s.Name}, texts, names, options))
	defer all.free()
	done = func() {}
	created := C.call_create(c.calls, all.at(0), all.at(1), C.int(len(names)), all.from(2), all.from(2+len(names)))
	p = created.p
	if err := c.result("nvrtcCreateProgram", created.result); err != nil {
		return nil, done, err
	}
	done = func() { C.call_destroy(c.calls, p) }
	err = c.result("nvrtcCompileProgram", C.call_compile(c.calls, p, C.int(len(options)), all.from(2+2*len(names))))
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", s.Name, err, c.log(p))
	}
	return p, done, err
}

func (c *Compiler) log(p C.program) string {
	text, err := c.fetch("nvrtcGetProgramLog", p,
		func(n *C.size_t) C.int { return C.call_log_size(c.calls, p, n) }, func(to *C.char) C.int { return C.call_log(c.calls, p, to) })
	if err != nil {
		return err.Error()
	}
	return strings.Trim(string(text), "\x00\n ")
}

// fetch asks for the size of something, and then for it.
func (c *Compiler) fetch(call string, _ C.program, size func(*C.size_t) C.int, get func(*C.char) C.int) ([]byte, error) {
	var n C.size_t
	if err := c.result(call+"Size", size(&n)); err != nil {
		return nil, err
	}
	text := make([]byte, max(int(n), 1))
	return text, c.result(call, get((*C.char)(unsafe.Pointer(&text[0]))))
}

func (c *Compiler) result(call string, r C.int) error {
	if r == 0 {
		return nil
	}
	return fmt.Errorf("%s: %s", call, C.GoString(C.call_text(c.calls, r)))
}

// cstrings are C strings with their list in C memory, as C wants it.
type cstrings struct{ list []*C.char }

func newStrings(all []string) cstrings {
	p := (**C.char)(C.malloc(C.size_t(len(all)+1) * C.size_t(unsafe.Sizeof((*C.char)(nil)))))
	s := cstrings{unsafe.Slice(p, len(all)+1)}
	for i, text := range all {
		s.list[i] = C.CString(text)
	}
	s.list[len(all)] = nil
	return s
}

func (s cstrings) at(i int) *C.char    { return s.list[i] }
func (s cstrings) from(i int) **C.char { return &s.list[i] }

func (s cstrings) free() {
	for _, p := range s.list {
		C.free(unsafe.Pointer(p))
	}
	C.free(unsafe.Pointer(unsafe.SliceData(s.list)))
}
