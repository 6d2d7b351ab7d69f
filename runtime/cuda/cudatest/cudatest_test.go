//go:build cuda && linux && amd64

package cudatest

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
)

func TestPTXIsThatOfTheSource(t *testing.T) {
	first, _, _ := strings.Cut(string(mixPTX), "\n")
	if want := fmt.Sprintf("sha256 %x", sha256.Sum256(mixSource)); !strings.Contains(first, want) {
		t.Errorf("mix.ptx is of another src/mix.cu: compile it again, and write %q into its first line", want)
	}
}
