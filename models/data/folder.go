package data

import (
	"fmt"
	"image"
)

var folderInfo = Info{
	Name:     "folder:PATH",
	Summary:  "JPEG and PNG files in a folder for each class, below train and test or in one folder that is split by the seed",
	Source:   "files of the user",
	MinImage: 8,
	Open:     openFolder,
}

// imagenet holds the means and deviations of ImageNet's training images, which published weights expect. For luminance
// the mean follows from the colors' and the deviation is their average.
var imagenet = tones{
	mean: [3]float64{0.485, 0.456, 0.406}, deviation: [3]float64{0.229, 0.224, 0.225},
	greyMean: 0.459, greyDeviation: 0.226,
}

// folder is a data set of pictures that are read and decoded when they are asked for.
type folder struct {
	skips
	palettes
	name    string
	options Options
	listing
	scratch scratches
}

func openFolder(path string, o Options) (Dataset, error) {
	if err := o.colors("folder"); err != nil {
		return nil, err
	}
	l, err := listFolder(path, o.Seed)
	if err != nil {
		return nil, fmt.Errorf("data set folder: %w", err)
	}
	f := &folder{name: "folder:" + path, options: o, listing: *l, palettes: newPalettes(imagenet, o.Channels, false), scratch: newScratches()}
	f.skips.options = &f.options
	return f, nil
}

// colors refuses a number of channels that pictures in color cannot be shown in.
func (o Options) colors(name string) error {
	if o.Channels != 1 && o.Channels != 3 {
		return fmt.Errorf("%w: data set %s with %d channels; 1 (luminance) and 3 (red, green, blue) work", ErrOption, name, o.Channels)
	}
	return nil
}

func (f *folder) Name() string    { return f.name }
func (f *folder) Classes() int    { return len(f.classes) }
func (f *folder) Shape() [3]int   { return f.options.shape() }
func (f *folder) TrainLen() int64 { return int64(len(f.splits[Train])) }
func (f *folder) TestLen() int64  { return int64(len(f.splits[Test])) }

// Fill implements Dataset.
func (f *folder) Fill(split Split, index int64, dst []float32) (int, error) {
	return fillFolder(f, f.values, split, index, dst)
}

// FillBytes implements Pictures.
func (f *folder) FillBytes(split Split, index int64, dst []uint8) (int, error) {
	return fillFolder(f, f.raw, split, index, dst)
}

// fillFolder is Fill with a palette. Where bad pictures are skipped, the next good one of the split takes the place of a bad one.
// It has its own label and the bad one's augmentation; in a test split it then counts twice.
func fillFolder[T Element](f *folder, with *palette[T], split Split, index int64, dst []T) (int, error) {
	all := f.splits[split]
	n := int64(len(all))
	s := f.scratch.get()
	defer f.scratch.put(s)
	for k := range n {
		p := &all[(index%n+k)%n]
		if f.options.SkipBad && f.known(p.path) {
			continue
		}
		err := showPicture(f, with, s, p.path, split, index, dst)
		if err == nil {
			return p.class, nil
		}
		if err := f.pass(p.path, 1, err); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("%w: every one of the %d %v pictures of %s is bad", ErrNoImages, n, split, f.name)
}

// showPicture decodes a picture and paints what sample index of a split shows of it.
func showPicture[T Element](f *folder, with *palette[T], s *scratch, path string, split Split, index int64, dst []T) error {
	return withPicture(s, path, func(img image.Image) error {
		show(s, with, img, f.options.viewOf(img.Bounds(), split, index), f.options.Image, dst)
		return nil
	})
}
