// Package onnx reads ONNX files, as torch.onnx.export writes them, as graphs that models are made of.
//
// A file is mapped, not copied: weights are read from it when a run begins.
package onnx

import (
	"fmt"

	"plimsoll/internal/mapped"
	"plimsoll/models"
	"plimsoll/models/importer"
)

func init() { models.RegisterFormat(".onnx", Open) }

// Open reads the model of a file. Errors: importer.ErrFormat, importer.ErrUnsupported, those of the operating system.
func Open(path string) (models.File, error) {
	message, err := mapped.Open(path)
	if err != nil {
		return models.File{}, err
	}
	return Read(path, message)
}

// Read is Open of a file's bytes, which must not change as long as the model is used. External data is read beside path.
func Read(path string, message []byte) (models.File, error) {
	if len(message) > mostBytes {
		return models.File{}, fmt.Errorf("%w: %s: it has %d bytes, more than %d", importer.ErrFormat, path, len(message), mostBytes)
	}
	g, err := readModel(message)
	if err != nil {
		return models.File{}, fmt.Errorf("%w: %s: %w", importer.ErrFormat, path, err)
	}
	g.readOutside(path)
	f, summary, err := importer.Open(path, &g.Graph)
	if err == nil {
		f.About = about(summary)
	}
	return f, err
}
