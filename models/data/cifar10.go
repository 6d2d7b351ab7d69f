package data

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
)

var cifar10Info = Info{
	Name:     "cifar10:PATH",
	Summary:  "CIFAR-10's binary format, data_batch_*.bin and test_batch.bin in a folder; 10 classes",
	Source:   "files of the user, as described in A. Krizhevsky: Learning multiple layers of features from tiny images, 2009",
	MinImage: 8,
	Open:     openCIFAR10,
}

const (
	cifarSide    = 32
	cifarClasses = 10
	cifarPixels  = 3 * cifarSide * cifarSide
	cifarRecord  = 1 + cifarPixels // a label, then the red, green and blue planes
	cifarPad     = 4

	maxCIFARBytes = 1 << 32
)

// cifarTones holds the means and deviations of CIFAR-10's training images.
var cifarTones = tones{
	mean: [3]float64{0.4914, 0.4822, 0.4465}, deviation: [3]float64{0.2470, 0.2435, 0.2616},
	greyMean: 0.4809, greyDeviation: 0.2392,
}

// openCIFAR10 reads the files of a folder, or of the folder that the archive makes in it. Training images are padded by 4
// pixels, cropped at random and mirrored (He et al.: Deep residual learning, 2016, section 4.2).
func openCIFAR10(path string, o Options) (Dataset, error) {
	if err := o.colors("cifar10"); err != nil {
		return nil, err
	}
	s := &stored{
		name: "cifar10:" + path, options: o, classes: cifarClasses,
		width: cifarSide, height: cifarSide, planes: 3, reach: cifarPad, mirrors: true,
	}
	s.skips.options = &s.options
	err := s.readCIFAR10(path)
	if err != nil {
		return nil, fmt.Errorf("data set cifar10: %w", err)
	}
	s.finish(o, cifarTones)
	return s, nil
}

func (s *stored) readCIFAR10(path string) error {
	files, err := findCIFAR10(path)
	if err != nil {
		return err
	}
	for split := range files {
		for _, file := range files[split] {
			records, err := readFile(file, maxCIFARBytes)
			if err != nil {
				return err
			}
			if err := s.addRecords(Split(split), file, records); err != nil {
				return err
			}
		}
	}
	if err := s.populated(); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// findCIFAR10 returns the files of each split, in order.
func findCIFAR10(path string) (files [2][]string, err error) {
	const inArchive = "cifar-10-batches-bin"
	entries, err := list(path, func(fs.DirEntry) bool { return true })
	if err != nil {
		return files, err
	}
	for _, name := range entries {
		switch train, _ := filepath.Match("data_batch_*.bin", name); {
		case train:
			files[Train] = append(files[Train], filepath.Join(path, name))
		case name == "test_batch.bin":
			files[Test] = append(files[Test], filepath.Join(path, name))
		}
	}
	if len(files[Train])+len(files[Test]) == 0 && slices.Contains(entries, inArchive) {
		return findCIFAR10(filepath.Join(path, inArchive))
	}
	for split, name := range []string{"data_batch_*.bin", "test_batch.bin"} {
		if len(files[split]) == 0 {
			return files, fmt.Errorf("%w for %v: %s has no %s", ErrNoImages, Split(split), path, name)
		}
	}
	return files, nil
}

// addRecords appends the records of a file to a split. Errors: ErrTruncated, ErrLabel, unless they are skipped.
func (s *stored) addRecords(split Split, file string, records []byte) error {
	p := &s.parts[split]
	for n := 0; len(records) > 0; n++ {
		record := records[:min(cifarRecord, len(records))]
		records = records[len(record):]
		if err := checkRecord(record); err != nil {
			where := fmt.Sprintf("%s: record %d", file, n)
			if err := s.pass(where, 1, fmt.Errorf("%s: %w", where, err)); err != nil {
				return err
			}
			continue
		}
		p.labels = append(p.labels, record[0])
		p.pixels = append(p.pixels, record[1:]...)
	}
	return nil
}

func checkRecord(record []byte) error {
	switch {
	case len(record) < cifarRecord:
		return fmt.Errorf("%w: %d of %d bytes", ErrTruncated, len(record), cifarRecord)
	case record[0] >= cifarClasses:
		return fmt.Errorf("%w: %d; CIFAR-10 has 0 to %d", ErrLabel, record[0], cifarClasses-1)
	}
	return nil
}
