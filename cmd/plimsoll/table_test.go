package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Pictures in docs/concepts.md and docs/larger.md are what the commands below them draw. -update draws them anew.
func TestPicturesOfTables(t *testing.T) {
	t.Parallel()
	pages := read(t, "../../docs/concepts.md") + read(t, "../../docs/larger.md")
	commands := regexp.MustCompile(`(?m)^\$ plimsoll ((?:train .*table=|plan .*--svg )docs/(\S+\.svg).*)$`).FindAllStringSubmatch(pages, -1)
	if len(commands) != 3 {
		t.Fatalf("%d pictures", len(commands))
	}
	for _, m := range commands {
		file, picture := filepath.Join(t.TempDir(), m[2]), "../../docs/"+m[2]
		line := strings.Replace(strings.Replace(m[1], "docs/"+m[2], file, 1), "docs/", "../../docs/", 1)
		works(t, words(line)...)
		drawn := read(t, file)
		if *update {
			write(t, picture, drawn)
		}
		if drawn != read(t, picture) {
			t.Errorf("%s is not what its command draws: go test ./cmd/plimsoll -run PicturesOfTables -update", m[2])
		}
	}
}

// A table that cannot be written is refused before anything is measured.
func TestTablesThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "none", "table.svg")
	if r := plimsoll(t, "train", "-m", "tiny", "--debug", "table="+path); r.code != exitUsage || !strings.Contains(r.err, "--debug table "+path+": there is no folder") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
	if _, err := os.Stat(filepath.Dir(path)); err == nil {
		t.Error("the folder was made")
	}
}
