package data

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
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

// An epoch of a text is all of it but less than two windows, side by side from another place each time; each token's label follows it.
func TestTextInWindows(t *testing.T) {
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
		var b strings.Builder
		for i := range set.TrainLen() {
			tokens, labels := tokensOf(t, set, Train, epoch*set.TrainLen()+i)
			if tokens[1:] != labels[:len(labels)-1] {
				t.Fatalf("labels %q of %q", labels, tokens)
			}
			b.WriteString(tokens)
		}
		start := strings.Index(whole, b.String())
		if start < 0 || start >= 100 || b.Len() < len(all)*9/10-200 {
			t.Fatalf("epoch %d: %d bytes from %d", epoch, b.Len(), start)
		}
		starts[start] = true
	}
	if len(starts) != 3 {
		t.Errorf("epochs start at %v", starts)
	}
	first, _ := tokensOf(t, set, Test, 0)
	last, labels := tokensOf(t, set, Test, set.TestLen()-1)
	if at := strings.Index(whole, first); at < len(all)*9/10-1 {
		t.Errorf("held out from %d on, of %d", at, len(all))
	}
	if !strings.Contains(whole[len(whole)-202:], last+labels[99:]) {
		t.Errorf("the last held out window is %q", last)
	}
}

// Batches of text hold a label for each token, the same from a batcher and a loader.
func TestBatchesOfText(t *testing.T) {
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
