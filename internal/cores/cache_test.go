package cores

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLargestCache(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sizes []string
		want  int64
	}{
		{[]string{"48K\n", "2048K\n", "491520K\n"}, 480 << 20},
		{[]string{"32K", "1M"}, 1 << 20},
		{[]string{"-5K", "many", "", "99999999999999999K"}, usualCache},
		{nil, usualCache},
	} {
		folder := t.TempDir()
		for i, size := range c.sizes {
			index := filepath.Join(folder, "index"+string(rune('0'+i)))
			if err := os.Mkdir(index, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(index, "size"), []byte(size), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := largestCache(folder); got != c.want {
			t.Errorf("%q: %d, want %d", c.sizes, got, c.want)
		}
	}
	if got := LargestCache(); got < 1<<14 {
		t.Errorf("this processor's largest cache has %d bytes", got)
	}
}
