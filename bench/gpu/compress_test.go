package main

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestProgramsThatShareCode: two programs that share most of their code take the room of one, and come back as they were. Archives that end
// early are refused.
func TestProgramsThatShareCode(t *testing.T) {
	t.Parallel()
	random := rand.NewChaCha8([32]byte{1})
	code := make([]byte, 12<<20)
	_, _ = random.Read(code)
	programs := append(bytes.Clone(code), code...)
	var packed, back bytes.Buffer
	must(t, compress(bytes.NewReader(programs), &packed))
	if most := len(code) + len(code)/8; packed.Len() > most {
		t.Errorf("%d bytes became %d, want at most %d", len(programs), packed.Len(), most)
	}
	whole := bytes.Clone(packed.Bytes())
	must(t, decompress(&packed, &back))
	if !bytes.Equal(back.Bytes(), programs) {
		t.Error("the programs came back changed")
	}
	if decompress(bytes.NewReader(whole[:len(whole)/2]), &back) == nil {
		t.Error("half an archive was unpacked without an error")
	}
}
