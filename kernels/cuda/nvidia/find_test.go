package nvidia

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// touch makes an empty file, and returns its path.
func touch(t *testing.T, parts ...string) string {
	t.Helper()
	path := filepath.Join(parts...)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o777); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSearchOrder: what the user names, then the loader, then Python.
func TestSearchOrder(t *testing.T) {
	root := t.TempDir()
	site := filepath.Join(root, "site-packages")
	late := touch(t, site, "nvidia", "cudnn", "lib", "libx.so.9")
	later := touch(t, site, "nvidia", "cu13", "lib", "libx.so.8")
	first, second := touch(t, root, "a", "libx.so.8"), touch(t, root, "b", "libx.so.9")
	touch(t, root, "a", "liby.so.9")
	if err := os.Mkdir(filepath.Join(root, "a", "libx.so.9"), 0o777); err != nil { // no file
		t.Fatal(err)
	}
	s := Search{Folders: []string{filepath.Join(root, "a"), filepath.Join(root, "b")}, Python: []string{site}}
	got, named, err := s.candidates([]string{"libx.so.9", "libx.so.8"})
	want := []string{first, second, "libx.so.9", "libx.so.8", later, late}
	if err != nil || named != 2 || !slices.Equal(got, want) {
		t.Errorf("candidates are %q, %d, %v; want %q", got, named, err, want)
	}
	for _, bad := range []string{first, filepath.Join(root, "none")} {
		if _, _, err := (Search{Folders: []string{bad}}).candidates([]string{"libx.so.9"}); err == nil || !strings.Contains(err.Error(), bad) || !strings.Contains(err.Error(), "--debug vendor-path") {
			t.Errorf("%s is searched: %v", bad, err)
		}
	}
}

// TestSearchPath: the flag before the environment.
func TestSearchPath(t *testing.T) {
	t.Setenv(PathVariable, "/c:/d:")
	if got := NewSearch("").Folders; !slices.Equal(got, []string{"/c", "/d"}) {
		t.Errorf("folders are %q", got)
	}
	if got := NewSearch("/e").Folders; !slices.Equal(got, []string{"/e"}) {
		t.Errorf("folders are %q", got)
	}
}

// TestSitePackages: the virtual environment before the user's own packages and those of a python3 in PATH, each once.
func TestSitePackages(t *testing.T) {
	root := t.TempDir()
	touch(t, root, "venv", "lib", "python3.12", "site-packages", "x")
	touch(t, root, "home", ".local", "lib", "python3.11", "site-packages", "x")
	touch(t, root, "opt", "lib", "python3.10", "site-packages", "x")
	touch(t, root, "opt", "bin", "python3")
	touch(t, root, "venv", "bin", "python3")
	touch(t, root, "far", "lib", "python3.13", "site-packages", "x")
	if err := os.MkdirAll(filepath.Join(root, "links", "bin"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(touch(t, root, "far", "bin", "python3.13"), filepath.Join(root, "links", "bin", "python3")); err != nil {
		t.Fatal(err)
	}
	touch(t, root, "empty", "bin", "python2")
	touch(t, root, "empty", "lib", "python3.9", "site-packages", "x")
	bin := func(name string) string { return filepath.Join(root, name, "bin") }
	environment := map[string]string{
		"VIRTUAL_ENV": filepath.Join(root, "venv"), "HOME": filepath.Join(root, "home"),
		"PATH": strings.Join([]string{bin("empty"), bin("venv"), bin("opt"), bin("links")}, string(filepath.ListSeparator)),
	}
	var got []string
	for _, folder := range sitePackages(func(name string) string { return environment[name] }) {
		if strings.HasPrefix(folder, root) {
			got = append(got, strings.TrimPrefix(folder, root))
		}
	}
	want := []string{"/venv/lib/python3.12/site-packages", "/home/.local/lib/python3.11/site-packages", "/opt/lib/python3.10/site-packages",
		"/far/lib/python3.13/site-packages"}
	if !slices.Equal(got, want) {
		t.Errorf("site-packages are %q, want %q", got, want)
	}
}

func TestMissing(t *testing.T) {
	err := Search{Folders: []string{"/a"}, Python: []string{"/p"}}.missing("cuDNN 9", "libcudnn.so.9", "nvidia-cudnn-cu12")
	for _, part := range []string{"libcudnn.so.9", "/a", "1 Python", "pip install nvidia-cudnn-cu12", "--debug vendor-path", PathVariable} {
		if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), part) {
			t.Errorf("%v: does not say %q", err, part)
		}
	}
}
