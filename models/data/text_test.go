package data

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"plimsoll/models/tokenizer"
)

// tokensOf reads a sample back as text, and what its labels say.
func tokensOf(t *testing.T, set Dataset, split Split, index int64) (tokens, labels string) {
	t.Helper()
	n := set.Shape()[1]
	dst, of := make([]float32, n), make([]int32, n)
	if err := set.(Sequences).FillTokens(split, index, dst, of); err != nil {
		t.Fatal(err)
	}
	var a, b strings.Builder
	for i := range dst {
		a.WriteByte(byte(math.Float32bits(dst[i])))
		b.WriteByte(byte(of[i]))
	}
	return a.String(), b.String()
}

// TestTextInWindows checks the built-in text: labels follow their tokens, and the windows of three epochs begin at different places.
func TestTextInWindows(t *testing.T) {
	t.Parallel()
	all, err := loadOpticks()
	if err != nil {
		t.Fatal(err)
	}
	set, err := Open("opticks", Options{Seed: 3, Length: 100})
	if err != nil {
		t.Fatal(err)
	}
	whole, starts := string(all), map[int]bool{}
	for epoch := range int64(3) {
		tokens, _ := tokensOf(t, set, Train, epoch*set.TrainLen()+1)
		starts[strings.Index(whole, tokens)] = true
		tokens, labels := tokensOf(t, set, Train, epoch*set.TrainLen()+7)
		if tokens[1:] != labels[:len(labels)-1] {
			t.Fatalf("labels %q of %q", labels, tokens)
		}
	}
	if len(starts) != 3 {
		t.Errorf("second windows start at %v", starts)
	}
	first, _ := tokensOf(t, set, Test, 0)
	last, _ := tokensOf(t, set, Test, set.TestLen()-1)
	if at := strings.Index(whole, first); at != len(all)-len(all)/10 {
		t.Errorf("held out from %d on, of %d", at, len(all))
	}
	if !strings.HasSuffix(whole[:len(whole)-1], last) {
		t.Errorf("the last held out window is %q", last)
	}
}

// TestEveryTokenIsALabelOnceAnEpoch counts labels over texts and samples of many lengths. Each token but the first of its split is a label
// once, and follows its token. No sample is without labels, and an epoch has at most one sample more than its labels need.
func TestEveryTokenIsALabelOnceAnEpoch(t *testing.T) {
	t.Parallel()
	checked := 0
	for tokens := 2; tokens < 150; tokens++ {
		for length := 1; length < 40; length++ {
			for _, o := range []Options{{Seed: uint64(tokens), Length: length}, {Length: length, NoAugment: true}} {
				set := countedText(t, tokens, o)
				if set == nil {
					continue
				}
				for _, split := range []Split{Train, Test} {
					for epoch := range int64(3) {
						checkEpoch(t, set, split, epoch)
						checked++
					}
				}
			}
		}
	}
	if checked < 10_000 {
		t.Errorf("checked %d epochs", checked)
	}
}

// countedText returns a text whose tokens are their own positions; nil where it is too short.
func countedText(t *testing.T, tokens int, o Options) *text {
	t.Helper()
	ids := make([]int32, tokens)
	for i := range ids {
		ids[i] = int32(i)
	}
	set, err := newText("counted", o, "", tokenizer.NewTokens(ids, tokens), tokens)
	held := tokens / heldOut
	if enough := held > o.Length; enough != (err == nil) || err != nil && !errors.Is(err, ErrOption) {
		t.Fatalf("%d tokens, %d held out, %d a sample: %v", tokens, held, o.Length, err)
	}
	if err != nil {
		return nil
	}
	return set.(*text)
}

// checkEpoch checks the labels of one epoch.
func checkEpoch(t *testing.T, s *text, split Split, epoch int64) {
	t.Helper()
	first := int32(s.splits[split].At(0))
	length, n := s.options.Length, s.TrainLen()
	if split == Test {
		n = s.TestLen()
	}
	seen, total := map[int32]int{}, 0
	dst, labels := make([]float32, length), make([]int32, length)
	for i := range n {
		if err := s.FillTokens(split, epoch*n+i, dst, labels); err != nil {
			t.Fatal(err)
		}
		counts := 0
		for k, label := range labels {
			if label == Ignored {
				continue
			}
			if seen[label]++; seen[label] > 1 || label != int32(math.Float32bits(dst[k]))+1 {
				t.Fatalf("%v, %d tokens a sample, sample %d: label %d of token %d comes %d times", split, length, i, label, math.Float32bits(dst[k]), seen[label])
			}
			counts++
		}
		if total += counts; counts == 0 {
			t.Fatalf("%v, %d tokens a sample: sample %d of %d has no label", split, length, i, n)
		}
	}
	want := int(s.splits[split].Len()) - 1
	if need := (want + length - 1) / length; total != want || seen[first] > 0 || int(n) > need+1 || split == Test && int(n) != need {
		t.Fatalf("%v, %d tokens a sample: %d labels in %d samples, want %d in %d", split, length, total, n, want, need)
	}
}

// Batches of text hold a label for each token, the same from a batcher and a loader.
func TestBatchesOfText(t *testing.T) {
	t.Parallel()
	set, err := Open("opticks", Options{Seed: 1, Length: 16})
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewBatcher(set, Train, 4, 1)
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewLoader(t.Context(), b, 5, 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tokens, labels, again, same := make([]float32, 64), make([]int32, 64), make([]float32, 64), make([]int32, 64)
	for step := range int64(50) {
		if _, err := b.Fill(5+step, tokens, labels); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Next(again, same); err != nil {
			t.Fatal(err)
		}
		for i := range tokens {
			if tokens[i] != again[i] || labels[i] != same[i] || i%16 < 15 && math.Float32bits(tokens[i+1]) != uint32(labels[i]) {
				t.Fatalf("batch %d, token %d: %v, label %d; the loader has %v, %d", step, i, tokens[i], labels[i], again[i], same[i])
			}
		}
	}
}

// A folder is its .txt files in order; what is no text is refused by name.
func TestTextFiles(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for name, content := range map[string]string{"b.txt": "second. ", "a.TXT": strings.Repeat("first. ", 10), "c.md": "never", ".hidden.txt": "never"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all, err := readText(folder)
	if err != nil || string(all) != strings.Repeat("first. ", 10)+"second. " {
		t.Fatalf("%q, %v", all, err)
	}
	bad, empty := filepath.Join(folder, "bad.txt"), t.TempDir()
	if err := os.WriteFile(bad, []byte("na\xefve"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		o     Options
		want  error
		words string
	}{
		{"text:" + bad, Options{Length: 2}, ErrCorrupt, "byte 2, 0xef"},
		{"text:" + empty, Options{Length: 2}, ErrUnreadable, "no .txt files"},
		{"text:" + empty + "/none", Options{Length: 2}, ErrUnreadable, "none"},
		{"text:" + filepath.Join(folder, "b.txt"), Options{Length: 8}, ErrOption, "give more text"},
		{"opticks", Options{Length: -1}, ErrOption, "-1 tokens"},
		{"opticks", Options{Image: 32}, ErrOption, "reads images"},
		{"digits", Options{Image: 32, Length: 8}, ErrOption, "reads text"},
	} {
		if _, err := Open(c.name, c.o); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v, want %v with %q", c.name, err, c.want, c.words)
		}
	}
}
