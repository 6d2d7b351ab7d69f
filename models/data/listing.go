package data

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// picture is one file of a folder set.
type picture struct {
	path  string
	class int
}

// extensions of the files that count as pictures, in lower case.
var extensions = []string{".jpg", ".jpeg", ".png"}

// listing is the content of a folder set: the classes, sorted by name, and the pictures of each split, sorted by class
// and name.
type listing struct {
	classes []string
	splits  [2][]picture
}

// listFolder lists train/CLASS/* and test/CLASS/* (or val/CLASS/*) below root; without a train folder that holds folders,
// CLASS/* below root, a fifth of each class held out by the seed.
func listFolder(root string, seed uint64) (*listing, error) {
	folders, err := subfolders(root)
	if err != nil {
		return nil, err
	}
	if slices.Contains(folders, "train") {
		inner, err := subfolders(filepath.Join(root, "train"))
		if err != nil {
			return nil, err
		}
		if len(inner) > 0 {
			return listSplits(root, inner, folders)
		}
	}
	return listWhole(root, folders, seed)
}

// listSplits lists a root whose splits are folders.
func listSplits(root string, classes, folders []string) (*listing, error) {
	l := &listing{classes: classes}
	i := slices.IndexFunc(folders, func(name string) bool { return name == "test" || name == "val" })
	if i < 0 {
		return nil, fmt.Errorf("%w for tests: %s has a folder train, but neither test nor val", ErrNoImages, root)
	}
	for split, name := range []string{"train", folders[i]} {
		if err := l.add(Split(split), filepath.Join(root, name)); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// add lists the pictures of a split, whose folders have to be the classes.
func (l *listing) add(split Split, folder string) error {
	found, err := subfolders(folder)
	if err != nil {
		return err
	}
	for _, name := range found {
		if !slices.Contains(l.classes, name) {
			return fmt.Errorf("%w: %s is no class of the training images", ErrLabel, filepath.Join(folder, name))
		}
	}
	for class, name := range l.classes {
		path := filepath.Join(folder, name)
		if !slices.Contains(found, name) {
			return fmt.Errorf("%w: there is no folder %s", ErrEmptyClass, path)
		}
		all, err := pictures(path, class)
		if err != nil {
			return err
		}
		l.splits[split] = append(l.splits[split], all...)
	}
	return nil
}

// listWhole lists a root whose folders are the classes, and splits every class.
func listWhole(root string, classes []string, seed uint64) (*listing, error) {
	if len(classes) == 0 {
		return nil, fmt.Errorf("%w: %s holds no folders; each class has a folder of its own", ErrNoImages, root)
	}
	l := &listing{classes: classes}
	for class, name := range classes {
		path := filepath.Join(root, name)
		all, err := pictures(path, class)
		if err != nil {
			return nil, err
		}
		if len(all) < 2 {
			return nil, fmt.Errorf("%w: %s has 1 image, and one of each class is held out; it needs 2", ErrEmptyClass, path)
		}
		l.stratify(all, hash(seed, splitKey, uint64(class)))
	}
	return l, nil
}

// testShare is the part of a class that is held out: one in testShare, at least one.
const testShare = 5

// stratify deals the pictures of one class out to the splits.
func (l *listing) stratify(all []picture, key uint64) {
	for i, some := range split(all, key) {
		l.splits[i] = append(l.splits[i], some...)
	}
}

// split holds a share of files out, whichever the key says.
func split[T any](all []T, key uint64) (splits [2][]T) {
	n := uint64(len(all))
	test, order := max(1, (n+testShare/2)/testShare), newPermutation(n, key)
	for i, p := range all {
		to := Train
		if order.at(uint64(i)) < test {
			to = Test
		}
		splits[to] = append(splits[to], p)
	}
	return splits
}

// subfolders returns the names of the folders in a folder, sorted, links followed, hidden ones left out.
func subfolders(path string) ([]string, error) {
	return list(path, func(e fs.DirEntry) bool { return isFolder(path, e) })
}

// pictures returns the pictures in the folder of a class. Errors: ErrEmptyClass, ErrUnreadable.
func pictures(path string, class int) ([]picture, error) {
	names, err := list(path, func(e fs.DirEntry) bool {
		return slices.Contains(extensions, strings.ToLower(filepath.Ext(e.Name()))) && !isFolder(path, e)
	})
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: %s has no %s file", ErrEmptyClass, path, strings.Join(extensions, " or "))
	}
	all := make([]picture, len(names))
	for i, name := range names {
		all[i] = picture{filepath.Join(path, name), class}
	}
	return all, nil
}

// list returns the sorted names of the entries of a folder that are wanted.
func list(path string, wanted func(fs.DirEntry) bool) (names []string, err error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && wanted(e) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func isFolder(path string, e fs.DirEntry) bool {
	if e.Type()&fs.ModeSymlink == 0 {
		return e.IsDir()
	}
	info, err := os.Stat(filepath.Join(path, e.Name()))
	return err == nil && info.IsDir()
}

// filesOf is a file, or a folder's files with an extension in the order of their names. Errors: ErrUnreadable.
func filesOf(path, extension string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	files, err := list(path, func(e fs.DirEntry) bool {
		return strings.EqualFold(filepath.Ext(e.Name()), extension) && !isFolder(path, e)
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%w: folder %s has no %s files", ErrUnreadable, path, extension)
	}
	for i, name := range files {
		files[i] = filepath.Join(path, name)
	}
	return files, err
}
