package ram

import (
	"os"
	"path/filepath"
	"testing"
)

func TestParseAvailable(t *testing.T) {
	t.Parallel()
	got, err := parseAvailable([]byte("MemTotal:       24 kB\nMemFree: 1 kB\nMemAvailable:   12 kB\nSwapTotal: 0 kB\n"))
	if err != nil || got != 12<<10 {
		t.Errorf("got %d, %v", got, err)
	}
	for _, bad := range []string{"", "MemTotal: 24 kB\n", "MemAvailable: x kB\n", "MemAvailable: 12 MB\n", "MemAvailable:\n",
		"MemAvailable: 99999999999999999999 kB\n"} {
		if got, err := parseAvailable([]byte(bad)); err == nil {
			t.Errorf("%q was read as %d", bad, got)
		}
	}
}

func TestGroupAvailable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit, used string
		want        int64
		limited     bool
	}{
		{"1000\n", "400\n", 600, true},
		{"1000\n", "1400\n", 0, true},
		{"max\n", "400\n", 0, false},
		{"1000\n", "", 0, false},
		{"", "", 0, false},
	} {
		folder := t.TempDir()
		for name, text := range map[string]string{"memory.max": c.limit, "memory.current": c.used} {
			if text == "" {
				continue
			}
			if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, limited := groupAvailable(folder)
		if limited != c.limited || limited && got != c.want {
			t.Errorf("limit %q, used %q: got %d, %v", c.limit, c.used, got, limited)
		}
	}
}
