// Package data serves labeled images and text. It has built-in sets that a model can learn from without a download. It has readers of
// folders of pictures, of CIFAR-10, of MNIST's format and of text files.
//
// Everything is a pure function of its arguments. A sample depends on (seed, split, index) and on nothing drawn
// before it; a batch depends on (seed, step). A training run can therefore be repeated, or resumed at any step,
// by the step's number alone, and nothing about the data has to be saved in a checkpoint.
//
// The package knows no model and no device: it fills slices of the caller.
package data

// Split names one of the two disjoint parts of a data set.
type Split uint8

const (
	// Train holds the samples that a model is fitted to.
	Train Split = iota
	// Test holds the samples that a model is judged by. They are fixed: no augmentation, a fixed number.
	Test
)

// String returns "train" or "test".
func (s Split) String() string {
	if s == Train {
		return "train"
	}
	return "test"
}

// Dataset is a source of labeled images. Implementations are immutable and safe for concurrent use.
type Dataset interface {
	// Name returns the name under which Open knows the set.
	Name() string
	// Classes returns the number of classes; labels are 0..Classes-1.
	Classes() int
	// Shape returns the shape of one image: height, width, channels. Images are stored channels last.
	Shape() [3]int
	// TrainLen returns the number of distinct training samples, an epoch; 0 when there is no end of them.
	TrainLen() int64
	// TestLen returns the number of test samples.
	TestLen() int64
	// Fill writes sample index of a split to dst, which has height*width*channels elements, normalized to about
	// zero mean and unit variance, and returns its class. It does not allocate where the samples are in memory
	// and have the wanted size. Errors: those of the sample's file; built-in sets have none.
	//
	// Any index from 0 is valid. Training samples go on forever: where there are TrainLen distinct ones, index
	// i is sample i mod TrainLen, augmented anew in each epoch i / TrainLen. Test samples repeat unchanged
	// after TestLen.
	Fill(split Split, index int64, dst []float32) (label int, err error)
}

// Element is the type of an image's numbers: normalized values, or the bytes before normalization.
type Element interface{ float32 | uint8 }

// Pictures is a data set whose images are bytes until they are normalized.
type Pictures interface {
	Dataset
	// Palette returns the normalized value of each byte in each channel: channels,256; nil where, as in pairs of other images,
	// there are no bytes.
	Palette() []float32
	// FillBytes is Fill before the normalization: Fill gives the palette's value for each of its bytes.
	FillBytes(split Split, index int64, dst []uint8) (label int, err error)
}

// Sequences is a data set of text: a sample is a window of tokens, and the label of each token is the one that follows it. Shape is
// 1, tokens, 1, Classes the vocabulary.
type Sequences interface {
	Dataset
	// FillTokens is Fill for tokens, int32, as the bits of dst, with a label for each.
	FillTokens(split Split, index int64, dst []float32, labels []int32) error
}

// Classified is a data set of text whose samples have a class each, not a label for each token.
type Classified interface {
	Sequences
	// Classified tells it apart from other sequences.
	Classified()
}

// Masks is a data set of images that have a class for each pixel, or of numbers C,T that have one for each position: see Positions.
type Masks interface {
	Dataset
	// FillMask is Fill with the class of each pixel: height*width, row by row. A pixel that has no part in the loss, nor in any
	// metric, is Ignored.
	FillMask(split Split, index int64, dst []float32, mask []int32) error
}

// Positions are Masks of numbers C,T. There may be fewer positions than T.
type Positions interface {
	Masks
	// Positions returns how many there are in a sample.
	Positions() int
}

// Targets is a data set whose samples have numbers in the place of a class. Classes is how many a sample has.
type Targets interface {
	Dataset
	// FillTargets is Fill with the sample's targets, float32 as the bits of targets.
	FillTargets(split Split, index int64, dst []float32, targets []int32) error
	// TargetRange returns the least and the largest target of all samples.
	TargetRange() (least, largest float32)
}

// HasTargets reports whether the samples of a data set have targets, not classes.
func HasTargets(set Dataset) bool {
	_, ok := set.(Targets)
	return ok
}

// Ignored is the label of a pixel that does not count, as kernels.Ignored.
const Ignored = -100

// Masked reports whether the images of a data set have a class for each pixel.
func Masked(set Dataset) bool {
	_, ok := set.(Masks)
	return ok
}

// Labels returns how many labels, or targets, a sample of a data set has.
func Labels(set Dataset) int {
	s := set.Shape()
	switch set := set.(type) {
	case Classified:
		return 1
	case Positions:
		return set.Positions()
	case Sequences:
		return s[1]
	case Masks:
		return s[0] * s[1]
	case Targets:
		return set.Classes()
	}
	return 1
}

// Palette returns the palette of a data set of pictures. It is nil for other data sets, and if each pixel has a class: such images
// are read as values.
func Palette(set Dataset) []float32 {
	if p, ok := set.(Pictures); ok && !Masked(set) {
		return p.Palette()
	}
	return nil
}

// Options are the choices that every data set understands.
type Options struct {
	Seed     uint64 // of everything random: augmentation, and the samples themselves where they are generated
	Image    int    // height and width in pixels
	Channels int    // the grey value is repeated over them; 0 means 3
	Classes  int    // of a set that is drawn to order (shapes); 0 means as many as it is meant for. Others have those that they have
	Length   int    // tokens of a sample, of text
	Axes     int    // of a sample of numbers: 1 of Channels, 2 of Channels,Image; 0: of images or tokens
	// Tokenizer names the tokenizer that makes tokens of text, as tokenizer.Open takes it.
	Tokenizer string
	// NoAugment serves the training samples of a finite set as they are.
	NoAugment bool
	// SkipBad passes over samples whose bytes are bad, instead of failing: see Skipper.
	SkipBad bool
	// OnSkip is called once for each bad file or record that is passed over; its error names it. It may be nil, and it is
	// called from whichever goroutine met the sample.
	OnSkip func(error)
}

// maxImage keeps fixed-point coordinates far from their ends.
const maxImage = 4096

// axesNames say what numbers are, by the axes of a sample.
var axesNames = [...]string{"N,C,H,W", "N,F", "N,C,T"}

// shape is the shape of a sample: numbers C,T are C rows of T pixels, with one channel.
func (o Options) shape() [3]int {
	if o.Axes == 2 {
		return [3]int{o.Channels, o.Image, 1}
	}
	return [3]int{o.Image, o.Image, o.Channels}
}

// Skipper is a data set that may pass over bad samples. The next good sample in the stored order takes the place of
// a bad one, or the bad one is left out when the set is opened. Either way the sample in a place depends on the
// files alone, not on the order of reading.
type Skipper interface {
	// Skipped returns how many bad samples were met so far, each counted once.
	Skipped() int64
}

// Skipped returns how many bad samples a data set passed over so far; 0 for those that never do.
func Skipped(set Dataset) int64 {
	if s, ok := set.(Skipper); ok {
		return s.Skipped()
	}
	return 0
}

// Info describes a data set that Open knows.
type Info struct {
	Name    string // as Open wants it; for files, with PATH in the place of where they are
	Summary string // one line
	Source  string // origin and license

	MinImage int  // the smallest images that it serves, pixels a side
	Text     bool // whether its samples are texts: Open returns Sequences
	Numbers  bool // whether its samples may be numbers of any number of Axes
	// Open opens it, with complete options; path is "" but for files.
	Open func(path string, o Options) (Dataset, error)
}
