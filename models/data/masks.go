package data

import (
	"fmt"
	"image"
	"path/filepath"
	"slices"
	"strings"
)

var masksInfo = Info{
	Name:     "masks:PATH",
	Summary:  "pictures in PATH/images and PNG files with a class for each pixel in PATH/masks, or both below train and test; needs --classes",
	Source:   "files of the user",
	MinImage: 8,
	Open:     openMasks,
}

// maskIgnored is the value of a mask's pixels that have no class, as Pascal VOC and Cityscapes have it.
const maskIgnored = 255

// masks is a data set of pictures with a class for each pixel, in PNG files of the same names. Both are decoded when they are asked for.
type masks struct {
	skips
	palettes
	name    string
	options Options
	splits  [2][]maskedPicture
	scratch scratches
}

type maskedPicture struct{ picture, mask string }

func openMasks(path string, o Options) (Dataset, error) {
	name := "masks:" + path
	if err := o.colors(name); err != nil {
		return nil, err
	}
	if o.Classes < 1 || o.Classes > maskIgnored {
		return nil, fmt.Errorf("%w: data set %s does not say how many classes it has: give --classes, from 1 to %d", ErrOption, name, maskIgnored)
	}
	m := &masks{name: name, options: o, palettes: newPalettes(imagenet, o.Channels, false), scratch: newScratches()}
	m.skips.options = &m.options
	if err := m.list(path); err != nil {
		return nil, fmt.Errorf("data set %s: %w", name, err)
	}
	return m, nil
}

// list finds the pairs of both splits; a fifth of a folder without splits is held out by the seed.
func (m *masks) list(root string) (err error) {
	folders, err := subfolders(root)
	if err != nil {
		return err
	}
	if slices.Contains(folders, "images") {
		all, err := pairsOf(root)
		if err != nil {
			return err
		}
		if len(all) < 2 {
			return fmt.Errorf("%w: %s has 1 image, and one is held out: it needs 2", ErrNoImages, root)
		}
		m.splits = split(all, hash(m.options.Seed, splitKey, 0))
		return nil
	}
	i := slices.IndexFunc(folders, func(name string) bool { return name == "test" || name == "val" })
	if i < 0 || !slices.Contains(folders, "train") {
		return fmt.Errorf("%w: %s has neither images and masks, nor train and test (or val) with both", ErrNoImages, root)
	}
	for split, name := range []string{"train", folders[i]} {
		if m.splits[split], err = pairsOf(filepath.Join(root, name)); err != nil {
			return err
		}
	}
	return nil
}

// pairsOf lists the pictures of root/images, each of which has to have its mask in root/masks.
func pairsOf(root string) ([]maskedPicture, error) {
	all, err := pictures(filepath.Join(root, "images"), 0)
	if err != nil {
		return nil, err
	}
	found, err := pictures(filepath.Join(root, "masks"), 0)
	if err != nil {
		return nil, err
	}
	masks := map[string]string{}
	for i, p := range found {
		if i > 0 && stem(found[i-1].path) == stem(p.path) {
			return nil, fmt.Errorf("%w: %s and %s have one name: keep one of them", ErrNoImages, found[i-1].path, p.path)
		}
		masks[stem(p.path)] = p.path
	}
	pairs := make([]maskedPicture, len(all))
	for i, p := range all {
		if i > 0 && stem(all[i-1].path) == stem(p.path) {
			return nil, fmt.Errorf("%w: %s and %s have one name: keep one of them", ErrNoImages, all[i-1].path, p.path)
		}
		mask := masks[stem(p.path)]
		if mask == "" {
			return nil, fmt.Errorf("%w: %s has no mask %s.png", ErrNoImages, p.path, filepath.Join(root, "masks", stem(p.path)))
		}
		pairs[i] = maskedPicture{p.path, mask}
	}
	return pairs, nil
}

// stem is a file's name without folder and extension.
func stem(path string) string {
	return strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
}

func (m *masks) Name() string    { return m.name }
func (m *masks) Classes() int    { return m.options.Classes }
func (m *masks) Shape() [3]int   { return m.options.shape() }
func (m *masks) TrainLen() int64 { return int64(len(m.splits[Train])) }
func (m *masks) TestLen() int64  { return int64(len(m.splits[Test])) }

// Fill implements Dataset, with the class of the last pixel.
func (m *masks) Fill(split Split, index int64, dst []float32) (int, error) {
	mask := make([]int32, m.options.Image*m.options.Image)
	err := m.FillMask(split, index, dst, mask)
	return int(mask[len(mask)-1]), err
}

// FillMask implements Masks. A bad pair is passed over as fillFolder does.
func (m *masks) FillMask(split Split, index int64, dst []float32, mask []int32) error {
	all := m.splits[split]
	n := int64(len(all))
	s := m.scratch.get()
	defer m.scratch.put(s)
	for k := range n {
		p := &all[(index%n+k)%n]
		if m.options.SkipBad && m.known(p.picture) {
			continue
		}
		err := m.showPair(s, p, split, index, dst, mask)
		if err == nil {
			return nil
		}
		if err := m.pass(p.picture, 1, err); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: every one of the %d %v pictures of %s is bad", ErrNoImages, n, split, m.name)
}

func (m *masks) showPair(s *scratch, p *maskedPicture, split Split, index int64, dst []float32, mask []int32) error {
	var bounds image.Rectangle
	err := withPicture(s, p.picture, func(img image.Image) error {
		bounds = img.Bounds()
		show(s, m.values, img, m.options.viewOf(bounds, split, index), m.options.Image, dst)
		return nil
	})
	if err != nil {
		return err
	}
	return withPicture(s, p.mask, func(img image.Image) error {
		if img.Bounds() != bounds {
			return fmt.Errorf("%w: it has %v pixels, and its picture %v", ErrCorrupt, img.Bounds().Size(), bounds.Size())
		}
		class, err := classesOf(img, s.file)
		if err != nil {
			return err
		}
		return m.options.classify(class, m.options.viewOf(bounds, split, index), mask)
	})
}

// classify gives each pixel of a view the class of the mask's pixel that its middle is in. Errors: ErrLabel.
func (o *Options) classify(class func(x, y int) uint8, v view, mask []int32) error {
	side := o.Image
	for y := range side {
		for x := range side {
			at := x
			if v.mirror {
				at = side - 1 - x
			}
			from := image.Pt(v.window.Min.X+(2*at+1)*v.window.Dx()/(2*side), v.window.Min.Y+(2*y+1)*v.window.Dy()/(2*side))
			switch c := class(from.X, from.Y); {
			case c == maskIgnored:
				mask[y*side+x] = Ignored
			case int(c) >= o.Classes:
				return fmt.Errorf("%w: pixel %v has class %d, want 0 to %d (--classes %d), or %d where nothing counts", ErrLabel, from, c, o.Classes-1, o.Classes, maskIgnored)
			default:
				mask[y*side+x] = int32(c)
			}
		}
	}
	return nil
}

// classesOf reads a mask: the index of a palette, or a grey value of at most 8 bits. Errors: ErrCorrupt.
func classesOf(img image.Image, file []byte) (func(x, y int) uint8, error) {
	const depth = 24 // of a PNG's header
	switch img := img.(type) {
	case *image.Paletted:
		return img.ColorIndexAt, nil
	case *image.Gray:
		if string(file[1:4]) != "PNG" {
			break
		}
		scale := uint8(255 / (1<<file[depth] - 1)) // grey values of fewer bits are decoded as parts of 255
		return func(x, y int) uint8 { return img.GrayAt(x, y).Y / scale }, nil
	}
	return nil, fmt.Errorf("%w: a mask is a PNG file with a palette or with grey values of 8 bits: this one has colors, more bits, or loses some", ErrCorrupt)
}
