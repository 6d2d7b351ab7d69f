package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
)

// File is a file whose header has been read and checked. It holds no elements.
type File struct {
	name   string
	from   io.ReaderAt
	data   int64 // where the elements begin
	header *header
	byName map[string]entry
	closer io.Closer
}

// Open reads and checks the header of the regular file at path. Errors: *Error, those of the operating system.
func Open(path string) (*File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // opening a pipe would wait for a writer
		return nil, &Error{File: path, Err: fmt.Errorf("%w: it is not a regular file", ErrFormat)}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return Of(path, f)
}

// Opened is a file that is open; *os.File is one.
type Opened interface {
	io.ReaderAt
	io.Closer
	Stat() (fs.FileInfo, error)
}

// Of reads and checks the header of an open file, which it closes after an error; errors call it name.
func Of(name string, f Opened) (*File, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	file, err := New(name, f, info.Size())
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	file.closer = f
	return file, nil
}

// New reads and checks the header of a file of size bytes; errors call it name.
func New(name string, from io.ReaderAt, size int64) (*File, error) {
	f := &File{name: name, from: from, byName: map[string]entry{}}
	if err := f.readHeader(size); err != nil {
		var e *Error
		if errors.As(err, &e) {
			e.File = name
			return nil, e
		}
		return nil, &Error{File: name, Err: err}
	}
	for _, e := range f.header.entries {
		f.byName[e.Name] = e
	}
	return f, nil
}

// torchSave says what to do with what torch.save has written, which no other program than Python should read.
const torchSave = "it is a file of torch.save, which runs code when it is read: convert it, as with " +
	`python -c "import torch, safetensors.torch as s; s.save_file(torch.load('FILE.pth', map_location='cpu', weights_only=True), 'FILE.safetensors')"`

func (f *File) readHeader(size int64) error {
	if size < 8 {
		return whole("it has %d bytes, too few for the length of a header", size)
	}
	var length [8]byte
	if err := f.readAt(length[:], 0); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint64(length[:])
	bad := n > MaxHeader || n > uint64(size-8)
	switch {
	case bad && (string(length[:4]) == "PK\x03\x04" || string(length[:2]) == "\x80\x02"): // a zip archive, or pickled by PyTorch before 1.6
		return whole("%s", torchSave)
	case n > MaxHeader:
		return whole("the header's length is %d, more than %d", n, MaxHeader)
	case bad:
		return whole("it is truncated: the header's length is %d, and %d bytes follow", n, size-8)
	}
	text := make([]byte, n)
	if err := f.readAt(text, 8); err != nil {
		return err
	}
	f.data = 8 + int64(n)
	var err error
	f.header, err = parseHeader(text, size-f.data)
	return err
}

// readAt fills b from a place in the file.
func (f *File) readAt(b []byte, at int64) error {
	if n, err := f.from.ReadAt(b, at); n < len(b) {
		return fmt.Errorf("reading bytes %d to %d: %w", at, at+int64(len(b)), err)
	}
	return nil
}

// Close closes the file.
func (f *File) Close() error {
	if f.closer == nil {
		return nil
	}
	return f.closer.Close()
}

// Name returns the file's name in errors.
func (f *File) Name() string { return f.name }

// Metadata returns a copy of the header's free text fields.
func (f *File) Metadata() map[string]string { return maps.Clone(f.header.metadata) }

// Tensors returns the tensors in the order of their data.
func (f *File) Tensors() []Info {
	all := make([]Info, len(f.header.entries))
	for i, e := range f.header.entries {
		all[i] = e.Info
	}
	return all
}

// Tensor returns the description of a tensor.
func (f *File) Tensor(name string) (Info, bool) {
	e, ok := f.byName[name]
	return e.Info, ok
}

// Last returns the elements of the last tensor, of at most max bytes, and a reader of all bytes of the file before
// them. Errors: *Error.
func (f *File) Last(max int64) (before io.Reader, elements []byte, err error) {
	if len(f.header.entries) == 0 {
		return nil, nil, &Error{File: f.name, Err: ErrNoTensor}
	}
	e := f.header.entries[len(f.header.entries)-1]
	if e.end-e.begin > max {
		return nil, nil, &Error{File: f.name, Tensor: e.Name, Err: fmt.Errorf("it has %d bytes, more than %d", e.end-e.begin, max)}
	}
	elements = make([]byte, e.end-e.begin)
	if err := f.readAt(elements, f.data+e.begin); err != nil {
		return nil, nil, &Error{File: f.name, Tensor: e.Name, Err: err}
	}
	return io.NewSectionReader(f.from, 0, f.data+e.begin), elements, nil
}

// chunk is how many bytes are converted at a time.
const chunk = 1 << 16

// Float32 reads a tensor into dst, which has its number of elements, as float32. F16, BF16 and F32 keep their values
// exactly. F64 is rounded to the nearest float32 and must not overflow. An integer without an equal float32 is
// refused. Errors: *Error.
func (f *File) Float32(name string, dst []float32) error {
	e, ok := f.byName[name]
	if !ok {
		return &Error{File: f.name, Tensor: name, Err: ErrNoTensor}
	}
	size := e.DType.Size()
	if n := (e.end - e.begin) / size; n != int64(len(dst)) {
		return &Error{File: f.name, Tensor: name, Err: fmt.Errorf("its shape is %v, %d elements, and %d are asked for", e.Shape, n, len(dst))}
	}
	buffer := make([]byte, min(chunk, e.end-e.begin))
	for done := 0; done < len(dst); {
		part := dst[done:min(done+chunk/int(size), len(dst))]
		raw := buffer[:len(part)*int(size)]
		if err := f.readAt(raw, f.data+e.begin+int64(done)*size); err != nil {
			return &Error{File: f.name, Tensor: name, Err: err}
		}
		if i, err := toFloat32(e.DType, raw, part); err != nil {
			return &Error{File: f.name, Tensor: name, Err: fmt.Errorf("element %d %w", done+i, err)}
		}
		done += len(part)
	}
	return nil
}

// Int64 reads the one element of an I64 tensor without axes. Errors: *Error.
func (f *File) Int64(name string) (int64, error) {
	e, ok := f.byName[name]
	if !ok {
		return 0, &Error{File: f.name, Tensor: name, Err: ErrNoTensor}
	}
	if e.DType != I64 || len(e.Shape) > 0 {
		return 0, &Error{File: f.name, Tensor: name, Err: fmt.Errorf("it is %v of shape %v, not one I64", e.DType, e.Shape)}
	}
	var b [8]byte
	if err := f.readAt(b[:], f.data+e.begin); err != nil {
		return 0, &Error{File: f.name, Tensor: name, Err: err}
	}
	return int64(binary.LittleEndian.Uint64(b[:])), nil
}

// ErrNoTensor: a file has no tensor of that name.
var ErrNoTensor = errors.New("there is no tensor of this name")
