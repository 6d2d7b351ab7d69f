package sources

import (
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
)

// PTXFile is the name of the file with a module's PTX, which is compressed by gzip.
func PTXFile(module string) string { return module + ".ptx.gz" }

// ReadPTX reads the PTX of a module in a folder.
func ReadPTX(from fs.FS, module string) ([]byte, error) {
	file, err := fs.ReadFile(from, PTXFile(module))
	if err != nil {
		return nil, err
	}
	r, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// CompressPTX makes the file of a module's PTX: the same bytes for the same text.
func CompressPTX(ptx []byte) ([]byte, error) {
	var file bytes.Buffer
	w, err := gzip.NewWriterLevel(&file, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(ptx); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return file.Bytes(), nil
}
