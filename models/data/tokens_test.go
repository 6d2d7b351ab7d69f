package data

import (
	"encoding/binary"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"plimsoll/models/tokenizer"
)

// TestNanoGPT: both files of a folder are the splits, one file has its last tenth held out, and the vocabulary is that of the options.
func TestNanoGPT(t *testing.T) {
	t.Parallel()
	raw := func(from, n int) (all []byte) {
		for i := range n {
			all = binary.LittleEndian.AppendUint16(all, uint16(from+i))
		}
		return all
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "train.bin"), raw(0, 33))
	one := write(t, filepath.Join(dir, "val.bin"), raw(1000, 90))
	set, err := Open("nanogpt:"+dir, Options{Length: 8, NoAugment: true})
	must(t, err)
	tokens, labels := make([]float32, 8), make([]int32, 8)
	must(t, set.(Sequences).FillTokens(Train, 1, tokens, labels))
	if set.Classes() != 50257 || set.TrainLen() != 4 || set.TestLen() != 12 || tokenOf(tokens[0]) != 8 || labels[0] != 9 {
		t.Errorf("%d classes, %d and %d samples, token %d with label %d", set.Classes(), set.TrainLen(), set.TestLen(), tokenOf(tokens[0]), labels[0])
	}
	if set, err = Open("nanogpt:"+one, Options{Length: 8, Classes: 1090}); err != nil || set.Classes() != 1090 || set.TestLen() != 1 {
		t.Errorf("one file: %v", err)
	}
	odd := write(t, filepath.Join(dir, "odd.bin"), raw(0, 9)[:17])
	llmc := filepath.Join(dir, "llmc.bin")
	must(t, tokenizer.WriteFile(llmc, tokenizer.NewTokens(make([]int32, 99), 50257), 50257))
	for _, c := range []struct {
		path  string
		o     Options
		want  error
		words string
	}{
		{odd, Options{Length: 2}, ErrCorrupt, "17 bytes, want two for each token"},
		{llmc, Options{Length: 2}, ErrCorrupt, "give it as tokens:"},
		{dir + "/none", Options{Length: 2}, ErrUnreadable, "none"},
		{t.TempDir(), Options{Length: 2}, ErrUnreadable, "train.bin"},
		{one, Options{Length: 2, Tokenizer: "bytes"}, ErrOption, "leave it out"},
		{one, Options{Length: 80}, ErrOption, "81 tokens to train on and 9 held out"},
	} {
		if _, err := Open("nanogpt:"+c.path, c.o); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v, want %v with %q", c.path, err, c.want, c.words)
		}
	}
	set, err = Open("nanogpt:"+one, Options{Length: 8, Classes: 1000})
	must(t, err)
	if err := set.(Sequences).FillTokens(Test, 0, tokens, labels); !errors.Is(err, ErrLabel) {
		t.Errorf("tokens beyond the vocabulary: %v", err)
	}
}
