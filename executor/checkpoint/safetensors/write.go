package safetensors

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"unicode/utf8"
)

// Tensor is a tensor to be written: Data writes its elements.
type Tensor struct {
	Info
	Data func(io.Writer) error
}

// Write writes a file. It holds no elements: each tensor's Data is called when its turn comes, after every byte before it
// has gone to w. Tensors with wider elements come first, so that each is aligned to its elements; else they keep their
// order. Errors: *Error without a file, which wraps those of Data; those of w.
func Write(w io.Writer, metadata map[string]string, tensors []Tensor) error {
	tensors = slices.Clone(tensors)
	slices.SortStableFunc(tensors, func(a, b Tensor) int { return cmp.Compare(b.DType.Size(), a.DType.Size()) })
	h, err := place(metadata, tensors)
	if err != nil {
		return err
	}
	text, err := h.encode()
	if err != nil {
		return &Error{Err: err}
	}
	if _, err := w.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)); err != nil {
		return err
	}
	for i, t := range tensors {
		if err := writeData(w, t, h.entries[i].end-h.entries[i].begin); err != nil {
			return &Error{Tensor: t.Name, Err: err}
		}
	}
	return nil
}

// Size returns how many bytes Write writes. Errors: *Error without a file.
func Size(metadata map[string]string, tensors []Tensor) (int64, error) {
	h, err := place(metadata, tensors)
	if err != nil {
		return 0, err
	}
	text, err := h.encode()
	if err != nil {
		return 0, &Error{Err: err}
	}
	bytes := int64(8 + len(text))
	for _, e := range h.entries {
		bytes += e.end - e.begin
	}
	return bytes, nil
}

// place lays tensors one after the other and refuses what no reader would take.
func place(metadata map[string]string, tensors []Tensor) (*header, error) {
	h := &header{metadata: metadata}
	for name, value := range metadata {
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return nil, &Error{Err: fmt.Errorf("metadata %q is not UTF-8", name)}
		}
	}
	names := map[string]bool{metadataName: true}
	at := int64(0)
	for _, t := range tensors {
		bytes, err := t.Bytes()
		switch {
		case err != nil:
			return nil, &Error{Tensor: t.Name, Err: err}
		case names[t.Name] || !utf8.ValidString(t.Name):
			return nil, &Error{Tensor: t.Name, Err: fmt.Errorf("the name is taken or not UTF-8")}
		case bytes > math.MaxInt64-at:
			return nil, &Error{Tensor: t.Name, Err: fmt.Errorf("the file is too large")}
		}
		names[t.Name] = true
		h.entries = append(h.entries, entry{Info: t.Info, begin: at, end: at + bytes})
		at += bytes
	}
	return h, nil
}

func writeData(w io.Writer, t Tensor, bytes int64) error {
	count := counter{w: w}
	if err := t.Data(&count); err != nil {
		return err
	}
	if count.n != bytes {
		return fmt.Errorf("%d bytes were written, its shape %v takes %d", count.n, t.Shape, bytes)
	}
	return nil
}

// counter counts what goes through it.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// WriteFloat32 writes float32 elements, for Tensor.Data.
func WriteFloat32(w io.Writer, src []float32) error {
	buffer := make([]byte, 0, min(chunk, 4*len(src)))
	for part := range slices.Chunk(src, chunk/4) {
		buffer = buffer[:0]
		for _, x := range part {
			buffer = binary.LittleEndian.AppendUint32(buffer, math.Float32bits(x))
		}
		if _, err := w.Write(buffer); err != nil {
			return err
		}
	}
	return nil
}
