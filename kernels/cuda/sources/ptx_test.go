package sources

import (
	"bytes"
	"testing"
	"testing/fstest"
)

// TestPTXIsCompressed: a file gives the text back, the same text gives the same file, and a damaged file is an error.
func TestPTXIsCompressed(t *testing.T) {
	text := bytes.Repeat([]byte("add.f32 %f1, %f2, %f3;\n"), 1000)
	file, err := CompressPTX(text)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := CompressPTX(text); err != nil || !bytes.Equal(file, again) || len(file) > len(text)/10 {
		t.Errorf("%d bytes, then %d, %v", len(file), len(again), err)
	}
	read := func(file []byte) ([]byte, error) {
		return ReadPTX(fstest.MapFS{PTXFile("mma"): {Data: file}}, "mma")
	}
	if got, err := read(file); err != nil || !bytes.Equal(got, text) {
		t.Errorf("read %d bytes, %v", len(got), err)
	}
	for _, damaged := range [][]byte{nil, text, file[:len(file)/2], file[:len(file)-1]} {
		if got, err := read(damaged); err == nil {
			t.Errorf("%d bytes of a file of %d give %d", len(damaged), len(file), len(got))
		}
	}
}
