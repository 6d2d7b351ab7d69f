package data

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"plimsoll/internal/units"
)

var idxInfo = Info{
	Name:     "idx:PATH",
	Summary:  "MNIST's format, train- and t10k- images-idx3-ubyte and labels-idx1-ubyte in a folder, plain or .gz",
	Source:   "files of the user, as described in Y. LeCun, C. Cortes, C. Burges: The MNIST database of handwritten digits, 1998",
	MinImage: 8,
	Open:     openIDX,
}

// maxIDXBytes bounds a file and what a gzip file unpacks to.
const maxIDXBytes = 1 << 32

// idxMagic starts a file of bytes; the fourth byte of the file is the number of dimensions.
var idxMagic = []byte{0, 0, 8}

// idx is the content of one file. Payload may be shorter than the dimensions ask for; it is never longer.
type idx struct {
	file    string
	dims    []int64
	payload []byte
}

// openIDX reads the four files of a folder. Training images are moved by up to a fourteenth of their side, 2 of 28
// pixels; they are not mirrored, since a mirrored character is none.
func openIDX(path string, o Options) (Dataset, error) {
	s := &stored{name: "idx:" + path, options: o, planes: 1}
	s.skips.options = &s.options
	if err := s.readIDX(path); err != nil {
		return nil, fmt.Errorf("data set idx: %w", err)
	}
	s.reach = (min(s.width, s.height) + 7) / 14
	s.finish(o, measure(s.parts[Train].pixels))
	return s, nil
}

func (s *stored) readIDX(path string) error {
	files, err := findIDX(path)
	if err != nil {
		return err
	}
	for split, pair := range files {
		if err := s.addIDX(Split(split), pair[0], pair[1]); err != nil {
			return err
		}
	}
	if err := s.populated(); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// idxName matches the names of MNIST and of the sets made after it, with a dot as well as a hyphen before "idx".
var idxName = regexp.MustCompile(`(train|t10k|test)-(images[-.]idx3|labels[-.]idx1)-ubyte(\.gz)?$`)

// findIDX returns the images' and the labels' file of each split. If a file and its .gz are there, the plain one is
// taken.
func findIDX(path string) (files [2][2]string, err error) {
	names, err := list(path, func(e fs.DirEntry) bool { return idxName.MatchString(e.Name()) })
	if err != nil {
		return files, err
	}
	for _, name := range names {
		if plain, zipped := strings.CutSuffix(name, ".gz"); zipped && slices.Contains(names, plain) {
			continue
		}
		match := idxName.FindStringSubmatch(name)
		split, kind := Test, 0
		if match[1] == "train" {
			split = Train
		}
		if strings.HasPrefix(match[2], "labels") {
			kind = 1
		}
		if other := files[split][kind]; other != "" {
			return files, fmt.Errorf("%w: %s holds both %s and %s; which is meant?", ErrOption, path, filepath.Base(other), name)
		}
		files[split][kind] = filepath.Join(path, name)
	}
	return files, missingIDX(path, files)
}

func missingIDX(path string, files [2][2]string) error {
	for split, prefix := range []string{"train", "t10k"} {
		for kind, suffix := range []string{"images-idx3", "labels-idx1"} {
			if files[split][kind] == "" {
				return fmt.Errorf("%w for %v: %s has no %s-%s-ubyte, plain or .gz", ErrNoImages, Split(split), path, prefix, suffix)
			}
		}
	}
	return nil
}

// addIDX reads the images and labels of a split.
func (s *stored) addIDX(split Split, imagesFile, labelsFile string) error {
	images, err := openIDXFile(imagesFile, 3)
	if err != nil {
		return err
	}
	labels, err := openIDXFile(labelsFile, 1)
	if err != nil {
		return err
	}
	if images.dims[0] != labels.dims[0] {
		return fmt.Errorf("%w: %s has %d images, %s has %d labels", ErrCorrupt, imagesFile, images.dims[0], labelsFile, labels.dims[0])
	}
	if images.dims[0] == 0 {
		return fmt.Errorf("%s: %w", imagesFile, ErrNoImages)
	}
	if err := s.size(split, images); err != nil {
		return err
	}
	if split == Train && len(labels.payload) > 0 {
		s.classes = int(slices.Max(labels.payload)) + 1
	}
	return s.addPairs(split, images, labels)
}

// size takes the size of the training images and refuses test images of another one.
func (s *stored) size(split Split, images *idx) error {
	h, w := images.dims[1], images.dims[2]
	switch {
	case h < 1 || w < 1:
		return fmt.Errorf("%s: %w: images of %dx%d pixels", images.file, ErrCorrupt, h, w)
	case h > maxImage || w > maxImage:
		return fmt.Errorf("%s: %w: images of %dx%d pixels; at most %d a side", images.file, ErrTooLarge, h, w, maxImage)
	case split == Test && (int(h) != s.height || int(w) != s.width):
		return fmt.Errorf("%s: %w: images of %dx%d pixels, but %dx%d in training", images.file, ErrCorrupt, h, w, s.height, s.width)
	}
	s.height, s.width = int(h), int(w)
	return nil
}

// addPairs takes the images that are there and have a label in range; the others are closed up over.
func (s *stored) addPairs(split Split, images, labels *idx) error {
	whole, err := s.whole(images, labels)
	if err != nil {
		return err
	}
	kept, size := 0, s.width*s.height
	for i := range int(whole) {
		label := labels.payload[i]
		if int(label) >= s.classes {
			where := fmt.Sprintf("%s: label %d", labels.file, i)
			if err := s.pass(where, 1, fmt.Errorf("%s: %w: %d; the training labels are 0 to %d", where, ErrLabel, label, s.classes-1)); err != nil {
				return err
			}
			continue
		}
		if kept < i {
			labels.payload[kept] = label
			copy(images.payload[kept*size:], images.payload[i*size:][:size])
		}
		kept++
	}
	s.parts[split] = part{pixels: images.payload[:kept*size], labels: labels.payload[:kept]}
	return nil
}

// whole returns how many samples are in both files, which is fewer than they state only where bad ones are skipped.
func (s *stored) whole(images, labels *idx) (int64, error) {
	short, there := images, int64(len(images.payload)/(s.width*s.height))
	if n := int64(len(labels.payload)); n < there {
		short, there = labels, n
	}
	stated := images.dims[0]
	if there == stated {
		return there, nil
	}
	err := fmt.Errorf("%s: %w: %d of %d samples are whole", short.file, ErrTruncated, there, stated)
	return there, s.pass(short.file, stated-there, err)
}

// openIDXFile reads a file with a number of dimensions, unpacked if its first bytes are gzip's.
func openIDXFile(file string, dims int) (content *idx, err error) {
	f, size, err := openFile(file, maxIDXBytes)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // of a file that was read
	err = reading(f, file, func(r io.Reader) error {
		content, err = unpackIDX(r, size, dims)
		return err
	})
	if err == nil {
		content.file = file
	}
	return content, err
}

// A gzip file may unpack to so much, or to so many times its size: images pack to a tenth, zeros to a thousandth.
const (
	minUnpacked = 64 << 20
	maxPacking  = 100
)

// unpackIDX reads a file of so many bytes.
func unpackIDX(file io.Reader, size int64, dims int) (*idx, error) {
	r := bufio.NewReader(file)
	if first, _ := r.Peek(2); string(first) != "\x1f\x8b" {
		return parseIDX(r, dims, maxIDXBytes, size)
	}
	unpacked, err := gzip.NewReader(r)
	if err != nil {
		return nil, decodeError(err)
	}
	limit := min(max(minUnpacked, maxPacking*size), maxIDXBytes)
	return parseIDX(unpacked, dims, limit, limit)
}

// parseIDX reads one file: two zero bytes, 8 for bytes, the number of dimensions, each of them as a big-endian 32-bit
// number, then the elements, the last dimension running fastest. A file that ends before its last element is returned as
// far as it goes. It may state limit bytes, and holds no more than there. Errors: ErrCorrupt, ErrTooLarge, ErrTruncated in the header.
func parseIDX(r io.Reader, dims int, limit, there int64) (*idx, error) {
	header := make([]byte, 4+4*dims)
	n, err := io.ReadFull(r, header)
	if n >= 4 && (!bytes.HasPrefix(header, idxMagic) || int(header[3]) != dims) {
		return nil, fmt.Errorf("%w: it starts with % x, an IDX file of bytes in %d dimensions with 00 00 08 %02x", ErrCorrupt, header[:4], dims, dims)
	}
	if err != nil {
		return nil, fmt.Errorf("after %d of %d bytes of the header: %w", n, len(header), decodeError(err))
	}
	content := &idx{dims: make([]int64, dims)}
	for i := range content.dims {
		content.dims[i] = int64(binary.BigEndian.Uint32(header[4+4*i:]))
	}
	size := int64(1)
	for _, n := range content.dims {
		// The product so far is at most 2^32 and a dimension is less, so that 64 bits hold both together.
		if uint64(size)*uint64(n) > uint64(limit) {
			return nil, fmt.Errorf("%w: dimensions %v; at most %s are read of such a file", ErrTooLarge, content.dims, units.Bytes(limit))
		}
		size *= n
	}
	if err := content.read(r, size, there); err != nil {
		return nil, err
	}
	return content, nil
}

// read reads a payload of so many bytes, of which no more than there can come.
func (x *idx) read(r io.Reader, size, there int64) error {
	x.payload = make([]byte, min(size, there))
	n, err := io.ReadFull(r, x.payload)
	switch {
	case err == nil:
		return x.atEnd(r, size)
	case !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF):
		return decodeError(err)
	}
	x.payload = x.payload[:n]
	return nil
}

// atEnd refuses a file that goes on, or whose checksum does not follow.
func (x *idx) atEnd(r io.Reader, size int64) error {
	switch n, err := io.ReadFull(r, make([]byte, 1)); {
	case n > 0:
		return fmt.Errorf("%w: it goes on after its %d bytes in dimensions %v", ErrCorrupt, size, x.dims)
	case !errors.Is(err, io.EOF):
		return decodeError(err)
	}
	return nil
}

// measure returns the tones of grey images.
func measure(pixels []byte) tones {
	var counts [256]float64
	for _, v := range pixels {
		counts[v]++
	}
	var sum, squares float64
	for v, n := range counts {
		sum, squares = sum+n*float64(v), squares+n*float64(v*v)
	}
	mean := sum / float64(len(pixels))
	deviation := math.Sqrt(squares/float64(len(pixels)) - float64(mean*mean))
	if deviation == 0 {
		deviation = 1 // images of one tone
	}
	return tones{greyMean: mean / 255, greyDeviation: deviation / 255}
}
