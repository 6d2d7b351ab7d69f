package nvidia

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// PathVariable is the environment variable with the folders that are searched first, as in PATH.
const PathVariable = "PLIMSOLL_CUDA_LIBRARIES"

// ErrMissing is returned for a library that is nowhere.
var ErrMissing = errors.New("not found")

// Search says where libraries are looked for, in this order: the folders that the user names, where the loader looks
// (LD_LIBRARY_PATH, ldconfig), the nvidia packages of Python installations.
type Search struct {
	Folders []string
	Python  []string // site-packages
	// Emulated: the GPU is. Then only libraries from Folders are taken, which say that they are made for one: those of fake.
	Emulated bool
}

// NewSearch returns the search order. path names folders, separated as in PATH; when it is empty, the environment's do.
func NewSearch(path string) Search {
	if path == "" {
		path = os.Getenv(PathVariable)
	}
	s := Search{Python: sitePackages(os.Getenv)}
	for _, folder := range filepath.SplitList(path) {
		if folder != "" {
			s.Folders = append(s.Folders, folder)
		}
	}
	return s
}

// sitePackages lists the folders where the Python installations of this process's environment keep packages. These are
// the virtual environment's, conda's, the user's own, those of every python3 in PATH and of its link's target, and the
// system's.
func sitePackages(getenv func(string) string) []string {
	var roots []string
	for _, name := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		roots = append(roots, getenv(name))
	}
	if home := getenv("HOME"); home != "" {
		roots = append(roots, filepath.Join(home, ".local"))
	}
	for _, folder := range filepath.SplitList(getenv("PATH")) {
		python := filepath.Join(folder, "python3")
		if _, err := os.Stat(python); err == nil {
			roots = append(roots, filepath.Dir(folder))
		}
		if real, err := filepath.EvalSymlinks(python); err == nil { // /usr/local/bin/python3 -> /opt/python/bin/python3.12
			roots = append(roots, filepath.Dir(filepath.Dir(real)))
		}
	}
	var all []string
	for _, root := range append(roots, "/usr/local", "/usr") {
		if root == "" {
			continue
		}
		for _, pattern := range []string{"lib/python3*/site-packages", "lib/python3*/dist-packages", "lib64/python3*/site-packages"} {
			for _, found := range glob(filepath.Join(root, pattern)) {
				if !slices.Contains(all, found) {
					all = append(all, found)
				}
			}
		}
	}
	return all
}

// glob returns the matches, sorted. A root with characters that mean something in a pattern has none.
func glob(pattern string) []string {
	found, err := filepath.Glob(pattern)
	if err != nil {
		return nil
	}
	return found
}

// candidates returns where a library may be, in order: paths of files that exist, and bare names for the loader. The first
// named of them are in folders that the user names.
func (s Search) candidates(names []string) (all []string, named int, err error) {
	for _, folder := range s.Folders {
		info, err := os.Stat(folder)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
			return nil, 0, fmt.Errorf("%q is not a folder: name one that holds %s with --debug vendor-path=FOLDER or %s", folder, names[0], PathVariable)
		}
		all = appendFiles(all, folder, names)
	}
	named = len(all)
	if s.Emulated {
		return all, named, nil
	}
	all = append(all, names...)
	for _, site := range s.Python {
		for _, folder := range glob(filepath.Join(site, "nvidia", "*", "lib")) {
			all = appendFiles(all, folder, names)
		}
	}
	return all, named, nil
}

func appendFiles(all []string, folder string, names []string) []string {
	for _, name := range names {
		path := filepath.Join(folder, name)
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			all = append(all, path)
		}
	}
	return all
}

// missing says what was searched, and what to do.
func (s Search) missing(product, file, wheel string) error {
	if s.Emulated {
		return fmt.Errorf("%s (%s) %w: NVIDIA's libraries cannot use an emulated GPU: run without --debug vendor=require", product, file, ErrMissing)
	}
	where := "the loader's path"
	if len(s.Folders) > 0 {
		where = strings.Join(s.Folders, ", ") + ", " + where
	}
	return fmt.Errorf("%s (%s) %w in %s and the nvidia packages of %d Python folders: install it (pip install %s), or name its folder with --debug vendor-path=FOLDER or %s",
		product, file, ErrMissing, where, len(s.Python), wheel, PathVariable)
}
