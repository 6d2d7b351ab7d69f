package await

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestDo(t *testing.T) {
	t.Parallel()
	failure := errors.New("failed")
	if n, err := Do(t.Context(), func() (int, error) { return 7, failure }); n != 7 || !errors.Is(err, failure) {
		t.Errorf("%d, %v", n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	deaf := make(chan struct{})
	defer close(deaf)
	begun := func() (int, error) {
		cancel()
		<-deaf
		return 7, nil
	}
	for range 2 { // canceled while it works, and before
		if n, err := Do(ctx, begun); n != 0 || !errors.Is(err, context.Canceled) {
			t.Errorf("%d, %v", n, err)
		}
	}
}

// Work has the results that it had by its deadline.
func TestDoWaitsAtDeadlines(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	if n, err := Do(ctx, func() (int, error) { return 7, nil }); n != 7 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

func TestDoPanics(t *testing.T) {
	t.Parallel()
	defer func() {
		if p := fmt.Sprint(recover()); !strings.HasPrefix(p, "BUG: planned\n") || !strings.Contains(p, "TestDoPanics") {
			t.Errorf("panic %v", p)
		}
	}()
	_, _ = Do(t.Context(), func() (int, error) { panic("BUG: planned") })
}
