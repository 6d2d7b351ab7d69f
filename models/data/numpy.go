package data

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
)

var npyInfo = Info{
	Name:     "npy:PATH",
	Summary:  "x.npy and y.npy in a folder, which numpy.save wrote: samples, and their classes (integers) or targets (floats)",
	Source:   "files of the user",
	MinImage: 1,
	Numbers:  true,
	Open:     openNumPy,
}

// maxTargets bounds the targets of a sample, and classes.
const maxTargets = 1 << 20

// rows are the samples from..to of a split.
type rows struct {
	x, y     *array
	from, to int64
}

// numPy is a data set of arrays with a class for each sample.
type numPy struct {
	name    string
	shape   [3]int
	classes int
	parts   [2]rows
}

// numPyTargets is a data set of arrays with targets for each sample.
type numPyTargets struct {
	numPy
	least, largest float32
}

// numPyPositions is a data set of arrays with a class for each of several positions of each sample.
type numPyPositions struct{ numPy }

// openNumPy reads x.npy and y.npy. Held out are x_test.npy and y_test.npy, or the last fifth of the samples where there are none.
func openNumPy(path string, o Options) (Dataset, error) {
	s := numPy{name: "npy:" + path}
	if err := s.read(path); err != nil {
		return nil, fmt.Errorf("data set npy: %w", err)
	}
	if err := s.takeShape(o); err != nil {
		return nil, fmt.Errorf("data set npy: %w", err)
	}
	if err := s.takeClasses(o.Axes); err != nil {
		return nil, fmt.Errorf("data set npy: %w", err)
	}
	switch y := s.parts[Train].y; {
	case !y.kind.floats && len(y.shape) == 2:
		return &numPyPositions{s}, nil
	case !y.kind.floats:
		return &s, nil
	}
	t := &numPyTargets{s, math.MaxFloat32, -math.MaxFloat32}
	for _, p := range s.parts {
		for i := range p.y.samples() * int64(p.y.sample()) {
			v := float32(p.y.at(i))
			t.least, t.largest = min(t.least, v), max(t.largest, v)
		}
	}
	return t, nil
}

// read reads the files of both splits.
func (s *numPy) read(path string) error {
	train, err := openRows(filepath.Join(path, "x.npy"), filepath.Join(path, "y.npy"))
	if err != nil {
		return err
	}
	files := [2]string{filepath.Join(path, "x_test.npy"), filepath.Join(path, "y_test.npy")}
	var there [2]bool
	for i, file := range files {
		_, err := os.Stat(file)
		there[i] = !errors.Is(err, fs.ErrNotExist)
	}
	if there[0] != there[1] {
		return fmt.Errorf("%w: %s has only one of %s and %s: give both, or neither, which holds out the last fifth", ErrOption, path, filepath.Base(files[0]), filepath.Base(files[1]))
	}
	if !there[0] {
		if train.to < 2 {
			return fmt.Errorf("%s: %w: shape %v is one sample, and one is held out; it needs 2", train.x.file, ErrNoImages, train.x.shape)
		}
		test := train
		train.to -= max(train.to/5, 1)
		test.from = train.to
		s.parts = [2]rows{train, test}
		return nil
	}
	test, err := openRows(files[0], files[1])
	if err != nil {
		return err
	}
	s.parts = [2]rows{train, test}
	return errors.Join(test.x.like(train.x), test.y.like(train.y))
}

// openRows reads a pair of files.
func openRows(x, y string) (p rows, err error) {
	if p.x, err = openNPY(x); err != nil {
		return p, err
	}
	if p.y, err = openNPY(y); err != nil {
		return p, err
	}
	for _, a := range []*array{p.x, p.y} {
		if a.samples() < 1 || a.sample() < 1 {
			return p, fmt.Errorf("%s: %w: shape %v has no samples", a.file, ErrNoImages, a.shape)
		}
		if err := a.checkFinite(); err != nil {
			return p, err
		}
	}
	if p.to = p.x.samples(); p.to != p.y.samples() {
		return p, fmt.Errorf("%w: %s has %d samples, %s has %d", ErrCorrupt, x, p.to, y, p.y.samples())
	}
	return p, nil
}

// takeShape refuses samples that are not the images of the options.
func (s *numPy) takeShape(o Options) error {
	x := s.parts[Train].x
	switch sample := x.shape[1:]; len(sample) {
	case 1:
		s.shape = [3]int{1, 1, sample[0]}
	case 2:
		s.shape = [3]int{sample[0], sample[1], 1}
	case 3:
		s.shape = [3]int{sample[1], sample[2], sample[0]}
	default:
		return fmt.Errorf("%s: %w: shape is %v, want N,F or N,H,W or N,C,H,W", x.file, ErrCorrupt, x.shape)
	}
	want := o.shape()
	if o.Axes > 0 && (s.shape != want || len(x.shape) != o.Axes+1) {
		return fmt.Errorf("%w: %s has shape %v, and the model reads %s of %v: give it samples of this shape", ErrOption, x.file, x.shape, axesNames[o.Axes],
			[]int{o.Channels, o.Image}[:o.Axes])
	}
	if s.shape != want {
		return fmt.Errorf("%w: %s has shape %v, samples of %d channels and %dx%d pixels, and the model reads %d channels and %dx%d: "+
			"give --image %d --option data.channels=%d, or a model of this size",
			ErrOption, x.file, x.shape, s.shape[2], s.shape[0], s.shape[1], want[2], want[0], want[1], s.shape[0], s.shape[2])
	}
	return nil
}

// takeClasses counts the classes, or the targets, of samples of so many axes.
func (s *numPy) takeClasses(axes int) error {
	y := s.parts[Train].y
	if y.kind.floats {
		if s.classes = y.sample(); len(y.shape) > 2 || s.classes > maxTargets {
			return fmt.Errorf("%s: %w: targets have shape %v, want N or N,T with at most %d", y.file, ErrCorrupt, y.shape, maxTargets)
		}
		return nil
	}
	for split, p := range s.parts {
		positions := len(p.y.shape) == 2 && axes == 2
		if len(p.y.shape) != 1 && !positions {
			return fmt.Errorf("%s: %w: integers, which are classes, have shape %v, want N, or N,T where the model reads N,C,T; save targets as float32",
				p.y.file, ErrCorrupt, p.y.shape)
		}
		for i := range p.y.samples() * int64(p.y.sample()) {
			label, most := p.y.at(i), maxTargets
			if Split(split) == Test && s.parts[Test].y != y {
				most = s.classes
			}
			if positions && label == Ignored {
				continue
			}
			if label < 0 || label >= float64(most) {
				return fmt.Errorf("%s: %w: sample %d has class %v; classes are 0 to %d", p.y.file, ErrLabel, i/int64(p.y.sample()), label, most-1)
			}
			s.classes = max(s.classes, int(label)+1)
		}
	}
	return nil
}

func (s *numPy) Name() string    { return s.name }
func (s *numPy) Classes() int    { return s.classes }
func (s *numPy) Shape() [3]int   { return s.shape }
func (s *numPy) TrainLen() int64 { return s.parts[Train].to }
func (s *numPy) TestLen() int64  { return s.parts[Test].to - s.parts[Test].from }

// row returns a sample of a split by its number in the files.
func (p rows) row(index int64) int64 { return p.from + index%(p.to-p.from) }

// Fill implements Dataset; it never fails. Images are channels first in the files.
func (s *numPy) Fill(split Split, index int64, dst []float32) (int, error) {
	p := &s.parts[split]
	row := p.row(index)
	pixels, channels := s.shape[0]*s.shape[1], s.shape[2]
	base := row * int64(len(dst))
	for c := range channels {
		for i := range pixels {
			dst[i*channels+c] = float32(p.x.at(base + int64(c*pixels+i)))
		}
	}
	return int(p.y.at(row * int64(p.y.sample()))), nil
}

// Positions implements the interface of that name.
func (s *numPyPositions) Positions() int { return s.parts[Train].y.sample() }

// FillMask implements Masks; it never fails.
func (s *numPyPositions) FillMask(split Split, index int64, dst []float32, mask []int32) error {
	_, err := s.Fill(split, index, dst)
	p := &s.parts[split]
	base := p.row(index) * int64(len(mask))
	for i := range mask {
		mask[i] = int32(p.y.at(base + int64(i)))
	}
	return err
}

// FillTargets implements Targets; it never fails.
func (s *numPyTargets) FillTargets(split Split, index int64, dst []float32, targets []int32) error {
	_, err := s.Fill(split, index, dst)
	p := &s.parts[split]
	base := p.row(index) * int64(len(targets))
	for i := range targets {
		targets[i] = int32(math.Float32bits(float32(p.y.at(base + int64(i)))))
	}
	return err
}

// TargetRange implements Targets.
func (s *numPyTargets) TargetRange() (least, largest float32) { return s.least, s.largest }
