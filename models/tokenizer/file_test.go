package tokenizer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func header(n ...uint32) []byte {
	out := make([]byte, headerBytes)
	for i, v := range n {
		binary.LittleEndian.PutUint32(out[4*i:], v)
	}
	return out
}

// Written tokens read back the same, and take as few bytes as the vocabulary allows.
func TestFilesOfTokens(t *testing.T) {
	t.Parallel()
	for size, width := range map[int]int{256: 2, 257: 2, 50257: 2, 1 << 16: 2, 1<<16 + 1: 4, 128256: 4} {
		all := make([]int32, 40000)
		for i := range all {
			all[i] = int32((i * 7919) % size)
		}
		path := filepath.Join(t.TempDir(), "x.bin")
		if err := WriteFile(path, NewTokens(all, size), size); err != nil {
			t.Fatal(err)
		}
		got, n, err := OpenFile(path)
		if err != nil || n != size || got.Len() != int64(len(all)) {
			t.Fatalf("%d tokens of %d: %v", got.Len(), n, err)
		}
		for i, want := range all {
			if got.At(int64(i)) != uint32(want) {
				t.Fatalf("token %d is %d, want %d", i, got.At(int64(i)), want)
			}
		}
		if part := got.Part(3, 5); part.Len() != 2 || part.At(1) != uint32(all[4]) {
			t.Errorf("a part of %d tokens", part.Len())
		}
		if info, err := os.Stat(path); err != nil || info.Size() != int64(headerBytes+width*len(all)) {
			t.Errorf("size %d: %d bytes", size, info.Size())
		}
	}
}

// Files of llm.c do not say how large their vocabulary is: it is GPT-2's, or Llama 3's.
func TestFilesOfOthers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		header, tokens []byte
		size           int
	}{
		{header(20240520, 1, 2), []byte{1, 0, 2, 1}, 50257},
		{header(20240801, 7, 1), []byte{1, 0, 0, 0}, 128256},
	} {
		path := filepath.Join(t.TempDir(), "x.bin")
		write(t, filepath.Dir(path), "x.bin", string(c.header)+string(c.tokens))
		if all, size, err := OpenFile(path); err != nil || size != c.size || all.At(0) != 1 {
			t.Errorf("%d tokens of %d: %v", all.Len(), size, err)
		}
	}
}

func TestBadFiles(t *testing.T) {
	t.Parallel()
	for says, file := range map[string][]byte{
		"0 bytes are no header":                {},
		"1023 bytes are no header":             header()[1:],
		"it begins with 0":                     header(),
		"version 2":                            header(20240520, 2),
		"1 bytes of tokens, want 2":            append(header(20240520, 1, 1), 0),
		"want 8589934590 for 4294967295":       header(20240520, 1, 1<<32-1),
		"a vocabulary of 65537 tokens":         append(header(20240520, 1, 1, 1<<16+1), 0, 0),
		"a vocabulary of 4294967295 tokens of": append(header(20240801, 7, 1, 1<<32-1), 0, 0, 0, 0),
	} {
		path := filepath.Join(t.TempDir(), "x.bin")
		write(t, filepath.Dir(path), "x.bin", string(file))
		if _, _, err := OpenFile(path); !errors.Is(err, ErrFile) || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", says, err)
		}
	}
	if _, _, err := OpenFile(t.TempDir()); !errors.Is(err, ErrFile) {
		t.Errorf("a folder: %v", err)
	}
}

// Nothing that a file may hold is more than an error, and nothing of a size that it states is allocated.
func TestMutatedFiles(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	good := append(header(20240520, 1, 100, 300), make([]byte, 200)...)
	read := 0
	for range 5000 {
		file := bytes.Clone(good)
		for range 1 + r.IntN(4) {
			switch at := r.IntN(16); r.IntN(4) {
			case 0:
				file[at] = byte(r.Uint32())
			case 1:
				file[at] ^= 1 << r.IntN(8)
			case 2:
				file = file[:max(16, r.IntN(len(file)+1))]
			default:
				file = append(file, byte(r.Uint32()))
			}
		}
		all, size, err := parse(file)
		if err != nil {
			continue
		}
		read++
		for i := range all.Len() {
			_ = all.At(i)
		}
		if size < 1 || size > mostTokens {
			t.Fatalf("a vocabulary of %d", size)
		}
	}
	if read == 0 || read == 5000 {
		t.Errorf("%d of 5000 are read", read)
	}
}

func FuzzFile(f *testing.F) {
	f.Add(append(header(20240520, 1, 1), 0, 0))
	f.Fuzz(func(t *testing.T, file []byte) {
		if all, size, err := parse(file); err == nil && (size < 1 || all.Len() > int64(len(file))) {
			t.Fatalf("%d tokens of %d in %d bytes", all.Len(), size, len(file))
		}
	})
}
