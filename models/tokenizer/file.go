package tokenizer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"

	"plimsoll/internal/atomicfile"
	"plimsoll/internal/mapped"
)

// ErrFile says that a file has no tokens that can be read.
var ErrFile = errors.New("tokenizer: bad file of tokens")

// Tokens is a text as numbers of one width, little-endian.
type Tokens struct {
	data  []byte
	width int
}

// NewTokens stores tokens of a vocabulary of a size, in as few bytes as it allows.
func NewTokens(all []int32, size int) Tokens {
	t := Tokens{width: widthOf(size)}
	t.data = make([]byte, 0, len(all)*t.width)
	for _, n := range all {
		t.data = t.append(t.data, n)
	}
	return t
}

// NewBytes takes bytes for tokens, without a copy.
func NewBytes(text []byte) Tokens { return Tokens{text, 1} }

func widthOf(size int) int {
	switch {
	case size <= 1<<8:
		return 1
	case size <= 1<<16:
		return 2
	}
	return 4
}

func (t Tokens) append(dst []byte, n int32) []byte {
	switch t.width {
	case 1:
		return append(dst, byte(n))
	case 2:
		return binary.LittleEndian.AppendUint16(dst, uint16(n))
	}
	return binary.LittleEndian.AppendUint32(dst, uint32(n))
}

// Len counts them.
func (t Tokens) Len() int64 { return int64(len(t.data) / max(t.width, 1)) }

// At returns one of them.
func (t Tokens) At(i int64) uint32 {
	switch p := t.data[i*int64(t.width):]; t.width {
	case 1:
		return uint32(p[0])
	case 2:
		return uint32(binary.LittleEndian.Uint16(p))
	default:
		return binary.LittleEndian.Uint32(p)
	}
}

// Part returns the tokens between two places.
func (t Tokens) Part(from, to int64) Tokens {
	return Tokens{t.data[from*int64(t.width) : to*int64(t.width)], t.width}
}

// format is one of llm.c's two files of tokens (karpathy/llm.c, dev/data/data_common.py). It has a header of 256 numbers of 4 bytes: a
// magic number, a version, the number of tokens, and zeros. The tokens follow. Plimsoll writes the size of the vocabulary behind the
// count.
type format struct {
	magic, version uint32
	width          int
	size           int // of the vocabulary, where the file does not say
}

var formats = []format{
	{20240520, 1, 2, 50257},  // GPT-2's
	{20240801, 7, 4, 128256}, // Llama 3's
}

const headerBytes = 4 * 256

// WriteFile writes tokens of a vocabulary of a size, whole or not at all. Errors: ErrFile for too many.
func WriteFile(path string, all Tokens, size int) error {
	f := formats[0]
	if size > 1<<16 {
		f = formats[1]
	}
	if all.Len() > math.MaxInt32 {
		return fmt.Errorf("%w: %d tokens, and one file has %d at most: split the text", ErrFile, all.Len(), math.MaxInt32)
	}
	return atomicfile.WriteFile(path, func(w io.Writer) error {
		header := make([]byte, headerBytes)
		for i, n := range []uint32{f.magic, f.version, uint32(all.Len()), uint32(size)} {
			binary.LittleEndian.PutUint32(header[4*i:], n)
		}
		if _, err := w.Write(header); err != nil {
			return err
		}
		to := Tokens{width: f.width}
		buffer := make([]byte, 0, 1<<16)
		for i := range all.Len() {
			if buffer = to.append(buffer, int32(all.At(i))); len(buffer) == cap(buffer) {
				if _, err := w.Write(buffer); err != nil {
					return err
				}
				buffer = buffer[:0]
			}
		}
		_, err := w.Write(buffer)
		return err
	})
}

// OpenFile maps a file of tokens, and returns the size of their vocabulary. Errors: ErrFile, with path and field; those of the
// operating system.
func OpenFile(path string) (all Tokens, size int, err error) {
	data, err := openMapped(path)
	if err != nil {
		return Tokens{}, 0, err
	}
	all, size, err = parse(data)
	if err != nil {
		err = fmt.Errorf("%w: %s: %w", ErrFile, path, err)
	}
	return all, size, err
}

// OpenRaw maps a file of tokens of 2 bytes and nothing else, as nanoGPT's scripts write them. Errors: as OpenFile.
func OpenRaw(path string) (Tokens, error) {
	data, err := openMapped(path)
	if err == nil && len(data)%2 != 0 {
		err = fmt.Errorf("%w: %s: %d bytes, want two for each token", ErrFile, path, len(data))
	}
	if err == nil && len(data) >= 4 {
		if magic := binary.LittleEndian.Uint32(data); slices.ContainsFunc(formats, func(f format) bool { return f.magic == magic }) {
			err = fmt.Errorf("%w: %s: it begins with %d, as llm.c's files of tokens do: give it as tokens:%s", ErrFile, path, magic, path)
		}
	}
	if err != nil {
		return Tokens{}, err
	}
	return Tokens{data, 2}, nil
}

func openMapped(path string) ([]byte, error) {
	data, err := mapped.Open(path)
	if err != nil && !errors.As(err, new(*fs.PathError)) {
		err = fmt.Errorf("%w: %w", ErrFile, err)
	}
	return data, err
}

func parse(data []byte) (all Tokens, size int, err error) {
	if len(data) < headerBytes {
		return all, 0, fmt.Errorf("%d bytes are no header, which has %d", len(data), headerBytes)
	}
	var fields [4]uint32
	for i := range fields {
		fields[i] = binary.LittleEndian.Uint32(data[4*i:])
	}
	for _, f := range formats {
		if fields[0] != f.magic {
			continue
		}
		all, size = Tokens{data[headerBytes:], f.width}, f.size
		if fields[3] != 0 {
			size = int(fields[3])
		}
		switch count := int64(fields[2]); {
		case fields[1] != f.version:
			err = fmt.Errorf("version %d, want %d", fields[1], f.version)
		case int64(len(all.data)) != count*int64(f.width):
			err = fmt.Errorf("%d bytes of tokens, want %d for %d tokens", len(all.data), count*int64(f.width), count)
		case size > mostTokens || f.width == 2 && size > 1<<16:
			err = fmt.Errorf("a vocabulary of %d tokens of %d bytes", size, f.width)
		}
		return all, size, err
	}
	return all, 0, fmt.Errorf("it begins with %d, want %d or %d: write it with plimsoll tokenize", fields[0], formats[0].magic, formats[1].magic)
}
