package data

import (
	"bytes"
	"compress/gzip"
	_ "embed" // for opticks.txt.gz
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"unicode/utf8"

	"plimsoll/internal/units"
	"plimsoll/models/tokenizer"
)

//go:embed opticks.txt.gz
var opticksFile []byte

var opticksInfo = Info{
	Name:    "opticks",
	Summary: "567,198 bytes of English, Newton's Opticks; a token is a byte, of 256, or one of --tokenizer",
	Text:    true,
	Source:  "I. Newton: Opticks, 4th edition, London 1730; transcribed by Project Gutenberg (33504); public domain",
	Open: func(_ string, o Options) (Dataset, error) {
		all, err := loadOpticks()
		if err != nil {
			return nil, err
		}
		return encoded("opticks", o, all)
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
	Summary: "a UTF-8 file, or the .txt files of a folder in the order of their names; a token is a byte, of 256, or one of --tokenizer",
	Text:    true,
	Source:  "files of the user",
	Open: func(path string, o Options) (Dataset, error) {
		all, err := readText(path)
		if err != nil {
			return nil, fmt.Errorf("data set text: %w", err)
		}
		return encoded("text:"+path, o, all)
	},
}

const (
	// heldOut is the part of a text, at its end, that a model is judged by: one in heldOut.
	heldOut = 10
	// mostText bounds what is read, in bytes.
	mostText = 1 << 30
	// mostTokens bounds a sample.
	mostTokens = 1 << 20
)

// text is a data set of tokens.
//
// Every token of a split but its first is a label once an epoch. The labels are cut into pieces of the length of a sample, one for
// each sample. The first piece of a training epoch is shorter by a random number, and the last ones are as short as they must be.
// The sample of a piece is a whole window of tokens; labels of the window that are not of the piece are Ignored.
type text struct {
	name       string
	options    Options
	by         string // what made the tokens; "" is not known
	vocabulary int
	splits     [2]tokenizer.Tokens
}

// encoded is a text as the tokens that the options ask for.
func encoded(name string, o Options, all []byte) (Dataset, error) {
	by, err := tokenizer.Open(o.Tokenizer)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOption, err)
	}
	if by.Name() == tokenizer.BytesName {
		return newText(name, o, by.Name(), tokenizer.NewBytes(all), by.Size())
	}
	return newText(name, o, by.Name(), tokenizer.NewTokens(by.Encode(nil, all), by.Size()), by.Size())
}

// newText is a text whose last tenth is held out.
func newText(name string, o Options, by string, all tokenizer.Tokens, vocabulary int) (Dataset, error) {
	cut := all.Len() - all.Len()/heldOut
	return newSplits(name, o, by, vocabulary, all.Part(0, cut), all.Part(cut, all.Len()))
}

func newSplits(name string, o Options, by string, vocabulary int, train, test tokenizer.Tokens) (Dataset, error) {
	s := &text{name, o, by, vocabulary, [2]tokenizer.Tokens{train, test}}
	if s.TrainLen() < 1 || s.TestLen() < 1 {
		return nil, fmt.Errorf("%w: data set %s has %d tokens to train on and %d held out, and --length %d takes at least %d of each: give more text, or a smaller --length",
			ErrOption, name, train.Len(), test.Len(), o.Length, o.Length+1)
	}
	return s, nil
}

// readText reads a file, or those of a folder one after the other. Errors: ErrUnreadable, ErrTooLarge, ErrCorrupt.
func readText(path string) ([]byte, error) {
	files, err := filesOf(path, ".txt")
	if err != nil {
		return nil, err
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

func (s *text) Name() string      { return s.name }
func (s *text) Classes() int      { return s.vocabulary }
func (s *text) tokenizer() string { return s.by }
func (s *text) Shape() [3]int     { return [3]int{1, s.options.Length, 1} }

func (s *text) TrainLen() int64 { return s.pieces(Train) }
func (s *text) TestLen() int64  { return s.pieces(Test) }

// labels counts the tokens of a split that have one before them.
func (s *text) labels(split Split) int64 { return max(s.splits[split].Len()-1, 0) }

// pieces counts those of a split: as many as its labels need, of training epochs whatever the length of the first piece.
func (s *text) pieces(split Split) int64 {
	n, length := s.labels(split), int64(s.options.Length)
	switch {
	case n < length:
		return 0
	case split == Train && !s.options.NoAugment && n > length:
		return 1 + (n-1+length-1)/length
	}
	return (n + length - 1) / length
}

// piece returns where a piece begins and ends among the labels.
func (s *text) piece(split Split, index int64) (from, to int64) {
	n, length, count := s.labels(split), int64(s.options.Length), s.pieces(split)
	first := length
	if split == Train && !s.options.NoAugment && n > length {
		if start := int64(hash(s.options.Seed, windowKey, uint64(index/count)) % uint64(length)); start > 0 {
			first = start
		}
	}
	at := index % count
	end := func(k int64) int64 { return min(first+k*length, n-(count-1-k)) } // one label at least is left for each of the others
	if at > 0 {
		from = end(at - 1)
	}
	return from, end(at)
}

// Fill implements Dataset, with the label of the last token.
func (s *text) Fill(split Split, index int64, dst []float32) (int, error) {
	labels := make([]int32, len(dst))
	err := s.FillTokens(split, index, dst, labels)
	return int(labels[len(labels)-1]), err
}

// FillTokens implements Sequences.
func (s *text) FillTokens(split Split, index int64, dst []float32, labels []int32) error {
	from, to := s.piece(split, index)
	first := min(from, s.labels(split)-int64(len(dst)))
	for i := range dst {
		at := first + int64(i)
		token, next := s.splits[split].At(at), s.splits[split].At(at+1)
		if worst := max(token, next); worst >= uint32(s.vocabulary) {
			return fmt.Errorf("%w: data set %s: token %d, about number %d of its %v split, is beyond its vocabulary of %d", ErrLabel, s.name, worst, at, split, s.vocabulary)
		}
		dst[i], labels[i] = math.Float32frombits(token), int32(next)
		if at < from || at >= to {
			labels[i] = Ignored
		}
	}
	return nil
}

// Tokenizer returns the name of what has made a data set's tokens; "" of images, and where that is not known.
func Tokenizer(set Dataset) string {
	if s, ok := set.(interface{ tokenizer() string }); ok {
		return s.tokenizer()
	}
	return ""
}
