//go:build cgo && unix

package dynlib

import (
	"strings"
	"sync"
	"testing"
)

// The error names the library, however many goroutines fail at once.
// Only this test finds an error without a text, which was that of another thread.
func TestErrorsNameTheLibrary(t *testing.T) {
	t.Parallel()
	var group sync.WaitGroup
	for range 64 {
		group.Go(func() {
			for range 200 {
				if _, err := Open("none.so"); err == nil || !strings.Contains(err.Error(), "none.so") {
					t.Errorf("%v", err)
					return
				}
			}
		})
	}
	group.Wait()
}
