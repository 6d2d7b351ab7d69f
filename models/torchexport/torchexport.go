// Package torchexport reads the archives that torch.export.save writes, .pt2 files, as graphs that models are made of.
//
// An archive is mapped, not copied. Open reads all of it once, to check the checksums of the tensors; a run copies its weights from the map
// when it begins. An archive has JSON, raw tensors and pickles; pickles are never read, because reading one runs code.
package torchexport

import (
	"fmt"

	"plimsoll/internal/mapped"
	"plimsoll/models"
	"plimsoll/models/importer"
)

func init() { models.RegisterFormat(".pt2", Open) }

// Open reads the model of an archive. Errors: importer.ErrFormat, importer.ErrUnsupported, those of the operating system.
func Open(path string) (models.File, error) {
	bytes, err := mapped.Open(path)
	if err != nil {
		return models.File{}, err
	}
	return Read(path, bytes)
}

// Read is Open of an archive's bytes, which must not change as long as the model is used.
func Read(path string, bytes []byte) (models.File, error) {
	p, err := readProgram(bytes)
	if err != nil {
		return models.File{}, fmt.Errorf("%w: %s: %w", importer.ErrFormat, path, err)
	}
	g, err := p.graph()
	if err != nil {
		return models.File{}, fmt.Errorf("%w: %s: %w", importer.ErrUnsupported, path, err)
	}
	f, summary, err := importer.Open(path, g)
	if err != nil {
		return models.File{}, err
	}
	if err := p.compare(summary); err != nil {
		return models.File{}, fmt.Errorf("%w: %s: %w", importer.ErrUnsupported, path, err)
	}
	f.About = p.about(summary)
	if g.Mask != "" {
		f.About = append(f.About, "attention_mask hides nothing here: attention is causal, and data fills samples behind their texts, without labels")
	}
	return f, nil
}
