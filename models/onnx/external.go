package onnx

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"plimsoll/internal/mapped"
)

// readOutside maps the files that have elements of tensors. They lie in the model's folder or below: names and links that lead out of it are
// refused. A tensor whose elements cannot be had keeps the reason.
func (g *graph) readOutside(path string) {
	if len(g.outside) == 0 {
		return
	}
	folder := filepath.Dir(path)
	root, err := os.OpenRoot(folder)
	if err == nil {
		defer func() { _ = root.Close() }()
	}
	files := map[string][]byte{}
	for _, o := range g.outside {
		data, found := files[o.location]
		if err == nil && !found {
			data, o.tensor.Err = mapIn(root, o.location)
			if o.tensor.Err == nil {
				files[o.location] = data
			}
		} else {
			o.tensor.Err = err
		}
		if o.tensor.Err == nil {
			o.tensor.Raw, o.tensor.Err = o.cut(data)
		}
		if o.tensor.Err != nil {
			o.tensor.Err = fmt.Errorf("tensor %q is in the file %q beside the model (external data): %w", o.tensor.Name, o.location, o.tensor.Err)
		}
	}
}

func mapIn(root *os.Root, name string) ([]byte, error) {
	name = filepath.FromSlash(name)
	info, err := root.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no regular file")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: want a file in the model's folder", err)
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return mapped.File(f)
}

// cut returns the tensor's part of the file.
func (o outside) cut(file []byte) ([]byte, error) {
	size, length := int64(len(file)), o.length
	if length == 0 {
		length = max(size-o.offset, 0)
	}
	if o.offset > size || length > size-o.offset {
		return nil, fmt.Errorf("the file has %d bytes, want %d from byte %d on: copy it beside the model whole", size, length, o.offset)
	}
	return file[o.offset : o.offset+length], nil
}
