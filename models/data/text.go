package data

import (
	"bytes"
	"compress/gzip"
	_ "embed" // for opticks.txt.gz
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unicode/utf8"

	"plimsoll/internal/units"
)

//go:embed opticks.txt.gz
var opticksFile []byte

var opticksInfo = Info{
	Name:    "opticks",
	Summary: "567,198 bytes of English, Newton's Opticks; a token is a byte, of 256",
	Text:    true,
	Source:  "I. Newton: Opticks, 4th edition, London 1730; transcribed by Project Gutenberg (33504); public domain",
	Open: func(_ string, o Options) (Dataset, error) {
		all, err := loadOpticks()
		if err != nil {
			return nil, err
		}
		return newText("opticks", o, all)
	},
}

var loadOpticks = sync.OnceValues(func() ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(opticksFile))
	if err != nil {
		return nil, fmt.Errorf("opticks.txt.gz: %w", err)
	}
	return io.ReadAll(r)
})

var textInfo = Info{
	Name:    "text:PATH",
	Summary: "a UTF-8 file, or the .txt files of a folder in the order of their names; a token is a byte, of 256",
	Text:    true,
	Source:  "files of the user",
	Open: func(path string, o Options) (Dataset, error) {
		all, err := readText(path)
		if err != nil {
			return nil, fmt.Errorf("data set text: %w", err)
		}
		return newText("text:"+path, o, all)
	},
}

const (
	bytesVocabulary = 256
	// heldOut is the part of a text, at its end, that a model is judged by: one in heldOut.
	heldOut = 10
	// mostText bounds what is read, in bytes.
	mostText = 1 << 30
	// mostTokens bounds a sample.
	mostTokens = 1 << 20
)

// text is a data set whose tokens are the bytes of a text. Its first nine tenths are trained on, in windows that lie side by side:
// each epoch begins at another place below the length of one, so that every token comes once an epoch, behind other tokens each time.
type text struct {
	name    string
	options Options
	splits  [2][]byte
}

func newText(name string, o Options, all []byte) (Dataset, error) {
	cut := len(all) - len(all)/heldOut
	s := &text{name, o, [2][]byte{all[:cut], all[cut:]}}
	if s.TrainLen() < 1 || s.TestLen() < 1 {
		return nil, fmt.Errorf("%w: data set %s has %d tokens to train on and %d held out: %d tokens a sample (--length) take at least %d and %d; give more text, or shorter samples",
			ErrOption, name, cut, len(all)-cut, o.Length, 2*o.Length+1, o.Length+1)
	}
	return s, nil
}

// validateText refuses samples that are no windows of tokens.
func (o Options) validateText(info Info) error {
	if o.Length == 0 {
		return fmt.Errorf("%w: data set %s has text, and the model reads images: give it images, as in %s or %s", ErrOption, info.Name, digitsInfo.Name, folderInfo.Name)
	}
	if o.Length < 1 || o.Length > mostTokens {
		return fmt.Errorf("%w: data set %s with samples of %d tokens; 1 to %d work", ErrOption, info.Name, o.Length, mostTokens)
	}
	return nil
}

// readText reads a file, or those of a folder one after the other. Errors: ErrUnreadable, ErrTooLarge, ErrCorrupt.
func readText(path string) ([]byte, error) {
	files := []string{path}
	if info, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	} else if info.IsDir() {
		names, err := list(path, func(e fs.DirEntry) bool {
			return strings.EqualFold(filepath.Ext(e.Name()), ".txt") && !isFolder(path, e)
		})
		if err != nil {
			return nil, err
		}
		files = nil
		for _, name := range names {
			files = append(files, filepath.Join(path, name))
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("%w: folder %s has no .txt files", ErrUnreadable, path)
		}
	}
	var all []byte
	for _, file := range files {
		some, err := readTextFile(file, mostText-len(all))
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

func readTextFile(path string, most int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	defer func() { _ = f.Close() }()
	all, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	case len(all) > most:
		return nil, fmt.Errorf("%w: %s and what comes before it are more than %s", ErrTooLarge, path, units.Bytes(mostText))
	}
	if at := invalid(all); at >= 0 {
		return nil, fmt.Errorf("%w: %s: byte %d, %#x, begins no character of UTF-8: convert the file", ErrCorrupt, path, at, all[at])
	}
	return all, nil
}

// invalid returns where text stops being UTF-8, or -1.
func invalid(all []byte) int {
	for i := 0; i < len(all); {
		r, size := utf8.DecodeRune(all[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return -1
}

func (s *text) Name() string  { return s.name }
func (s *text) Classes() int  { return bytesVocabulary }
func (s *text) Shape() [3]int { return [3]int{1, s.options.Length, 1} }

// TrainLen counts the windows behind any start of an epoch.
func (s *text) TrainLen() int64 { return max(s.windows(Train)-1, 0) }
func (s *text) TestLen() int64  { return s.windows(Test) }

// windows counts those of a split that lie side by side; each token has one behind it.
func (s *text) windows(split Split) int64 {
	return max(int64(len(s.splits[split])-1), 0) / int64(s.options.Length)
}

// Fill implements Dataset, with the label of the last token.
func (s *text) Fill(split Split, index int64, dst []float32) (int, error) {
	labels := make([]int32, len(dst))
	err := s.FillTokens(split, index, dst, labels)
	return int(labels[len(labels)-1]), err
}

// FillTokens implements Sequences.
func (s *text) FillTokens(split Split, index int64, dst []float32, labels []int32) error {
	n, start := s.TestLen(), int64(0)
	if split == Train {
		n = s.TrainLen()
		if !s.options.NoAugment {
			start = int64(hash(s.options.Seed, windowKey, uint64(index/n)) % uint64(s.options.Length))
		}
	}
	window := s.splits[split][start+index%n*int64(s.options.Length):]
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(window[i]))
		labels[i] = int32(window[i+1])
	}
	return nil
}
