package data

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"io"
	"os"

	"golang.org/x/sync/semaphore"

	"plimsoll/internal/units"
)

// Limits of one picture. A file may state any size in a few bytes: what it states is checked before it is decoded.
const (
	maxPicturePixels  = 1 << 26 // 67 million
	maxPictureSide    = 1 << 16
	maxPictureBytes   = 1 << 28 // of the file
	maxPictureDecoded = 1 << 29 // of memory while it is decoded, converted and cropped
)

// decoding bounds the memory of all pictures that are decoded at one time, their files included.
var decoding = semaphore.NewWeighted(maxPictureBytes + maxPictureDecoded)

// openFile opens a regular file of at most limit bytes and returns its size. Errors: ErrUnreadable, ErrTooLarge, ErrTruncated for an
// empty file.
func openFile(path string, limit int64) (*os.File, int64, error) {
	// Opening a pipe would wait for a writer, so the look comes first.
	info, err := os.Stat(path)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	size := info.Size()
	switch {
	case !info.Mode().IsRegular():
		return nil, 0, fmt.Errorf("%w: %s is not a regular file", ErrUnreadable, path)
	case size > limit:
		return nil, 0, fmt.Errorf("%s: %w: %s; at most %s are read", path, ErrTooLarge, units.Bytes(size), units.Bytes(limit))
	case size == 0:
		return nil, 0, fmt.Errorf("%s: %w: it is empty", path, ErrTruncated)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return f, size, nil
}

// reading runs what parses an open file, and tells when it was the system that could not read it.
func reading(file io.Reader, path string, parse func(io.Reader) error) error {
	r := &honest{Reader: file}
	err := parse(r)
	if r.err != nil {
		return fmt.Errorf("%w: %s: %w", ErrUnreadable, path, r.err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// honest keeps the error of a reader, whatever is made of it.
type honest struct {
	io.Reader
	err error
}

func (h *honest) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		h.err = err
	}
	return n, err
}

// readFile reads a regular file of at most limit bytes. Errors: as of openFile.
func readFile(path string, limit int64) ([]byte, error) {
	f, size, err := openFile(path, limit)
	if err != nil {
		return nil, err
	}
	file := make([]byte, size)
	_, err = io.ReadFull(f, file)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrUnreadable, path, err)
	}
	return file, nil
}

// codec decodes one format. Weigh returns how many bytes a pixel takes while a picture is decoded and converted, from what it states
// and from the bytes that state it.
type codec struct {
	magic  string
	config func(io.Reader) (image.Config, error)
	decode func(io.Reader) (image.Image, error)
	weigh  func(stated image.Config, head []byte) int64
}

var codecs = []codec{
	{"\xff\xd8", jpeg.DecodeConfig, jpeg.Decode, weighJPEG},
	{"\x89PNG\r\n\x1a\n", png.DecodeConfig, png.Decode, weighPNG},
}

// weighJPEG counts the planes, the picture in RGB made of them and, of a progressive file, the coefficients.
func weighJPEG(stated image.Config, head []byte) int64 {
	pixel, planes := int64(8), int64(4) // of CMYK
	switch stated.ColorModel {
	case color.GrayModel:
		pixel, planes = 1, 1
	case color.YCbCrModel, color.RGBAModel:
		pixel, planes = 7, 3
	}
	if bytes.Contains(head, []byte("\xff\xc2")) { // the marker of progressive frames
		pixel += 4 * planes
	}
	return pixel
}

// weighPNG counts the picture and, of an interlaced one, its passes.
func weighPNG(stated image.Config, head []byte) int64 {
	const depth, interlaced = 24, 28 // of the header
	pixel := int64(4)
	switch _, indexed := stated.ColorModel.(color.Palette); {
	case indexed:
		pixel = 1
	case len(head) > depth && head[depth] == 16:
		pixel = 8
	}
	if len(head) > interlaced && head[interlaced] != 0 {
		pixel *= 2
	}
	return pixel
}

// statement holds the codec and the size that a picture states.
type statement struct {
	codec
	bytes int64 // that it takes while it is decoded
}

// look reads what a JPEG or PNG file states; its first bytes say which it is, not its name. Errors: ErrCorrupt, ErrTruncated,
// ErrTooLarge.
func look(file io.Reader) (statement, error) {
	var head bytes.Buffer
	r := bufio.NewReader(io.TeeReader(file, &head))
	first, _ := r.Peek(8) // what is shorter is neither
	for _, c := range codecs {
		if bytes.HasPrefix(first, []byte(c.magic)) {
			stated, err := c.config(r)
			if err != nil {
				return statement{}, decodeError(err)
			}
			return c.check(stated, head.Bytes())
		}
	}
	return statement{}, fmt.Errorf("%w: it is neither JPEG nor PNG", ErrCorrupt)
}

func (c codec) check(stated image.Config, head []byte) (statement, error) {
	w, h := int64(stated.Width), int64(stated.Height)
	switch {
	case w < 1 || h < 1:
		return statement{}, fmt.Errorf("%w: a picture of %dx%d pixels", ErrCorrupt, w, h)
	case w > maxPictureSide || h > maxPictureSide || w*h > maxPicturePixels:
		return statement{}, fmt.Errorf("%w: a picture of %dx%d pixels; at most %d pixels, %d a side", ErrTooLarge, w, h, maxPicturePixels, maxPictureSide)
	}
	s := statement{c, w * h * c.weigh(stated, head)}
	if s.bytes > maxPictureDecoded {
		return statement{}, fmt.Errorf("%w: a picture of %dx%d pixels that takes %s while it is decoded; at most %s", ErrTooLarge, w, h, units.Bytes(s.bytes), units.Bytes(maxPictureDecoded))
	}
	return s, nil
}

// picture decodes a file that states so much. Errors: ErrCorrupt, ErrTruncated.
func (s statement) picture(file []byte) (image.Image, error) {
	img, err := s.decode(bytes.NewReader(file))
	if err != nil {
		return nil, decodeError(err)
	}
	return img, nil
}

// shortPNG is package png's error for a picture with compressed pixels that end early.
const shortPNG = png.FormatError("not enough pixel data")

func decodeError(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, shortPNG) {
		return fmt.Errorf("%w: %w", ErrTruncated, err)
	}
	return fmt.Errorf("%w: %w", ErrCorrupt, err)
}
