package data

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func contains(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }

// hugePNG states a size in its header and holds nothing of it.
func hugePNG(w, h uint32) []byte {
	chunk := []byte("IHDR")
	chunk = binary.BigEndian.AppendUint32(chunk, w)
	chunk = binary.BigEndian.AppendUint32(chunk, h)
	chunk = append(chunk, 8, 2, 0, 0, 0)
	return headedPNG(chunk)
}

// headedPNG is a picture of a header alone.
func headedPNG(chunk []byte) []byte {
	b := []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0d")
	return binary.BigEndian.AppendUint32(append(b, chunk...), crc32.ChecksumIEEE(chunk))
}

// hugeJPEG is a good file whose start of frame states 65,500 x 65,500 pixels.
func hugeJPEG(good []byte) []byte {
	b := slices.Clone(good)
	at := bytes.Index(b, []byte{0xff, 0xc0}) // marker, length, precision, height, width
	copy(b[at+5:], []byte{0xff, 0xdc, 0xff, 0xdc})
	return b
}

// badPictures are files that cannot be shown, and why.
func badPictures(t testing.TB) map[string]struct {
	content []byte
	err     error
	text    string
} {
	p, j := pngBytes(t, scene(1, 40, 30)), jpegBytes(t, scene(2, 40, 30))
	flipped := slices.Clone(p)
	flipped[len(p)/2] ^= 0x55
	type bad = struct {
		content []byte
		err     error
		text    string
	}
	return map[string]bad{
		"empty":          {nil, ErrTruncated, "it is empty"},
		"text":           {[]byte("GIF89a no"), ErrCorrupt, "neither JPEG nor PNG"},
		"png cut":        {p[:len(p)/2], ErrTruncated, "not enough pixel data"},
		"png header cut": {p[:20], ErrTruncated, "unexpected EOF"},
		"png flipped":    {flipped, ErrCorrupt, "png: "},
		"jpeg cut":       {j[:len(j)/2], ErrTruncated, "unexpected EOF"},
		"jpeg noise":     {append(slices.Clone(j[:3]), noise(3, 400)...), ErrCorrupt, "JPEG"},
		"png bomb":       {hugePNG(60000, 60000), ErrTooLarge, "60000x60000 pixels"},
		"png long":       {hugePNG(70000, 8), ErrTooLarge, "65536 a side"},
		"png zero":       {hugePNG(0, 8), ErrCorrupt, "png: "},
		"jpeg bomb":      {hugeJPEG(j), ErrTooLarge, "65500x65500 pixels"},
	}
}

// A bad picture is named, with what is wrong with it.
func TestBadPictures(t *testing.T) {
	t.Parallel()
	cases := badPictures(t)
	for name, c := range cases {
		root := album(t, 2, "a")
		for i := range 2 { // whichever of the two is the training picture
			write(t, filepath.Join(root, "a", []string{"000.png", "001.JPG"}[i]), c.content)
		}
		set := open(t, "folder:"+root, Options{Image: 16})
		_, err := set.Fill(Train, 0, canvas(set))
		wrong(t, name, err, c.err, c.text, filepath.Join(root, "a", "00"))
		if Skipped(set) != 0 {
			t.Errorf("%s is skipped without being allowed to", name)
		}
	}
	if len(cases) != 11 {
		t.Errorf("%d cases", len(cases))
	}
}

// spoilt returns an album in which every kind of bad picture replaces some good ones, and the bad paths.
func spoilt(t testing.TB) (root string, bad []string) {
	root = album(t, 30, "a", "b", "c")
	i := 0
	cases := badPictures(t)
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		path := filepath.Join(root, []string{"a", "b", "c"}[i%3], fmt.Sprintf("%03d.png", 2*(i/2)))
		bad = append(bad, write(t, path, cases[name].content))
		i++
	}
	return root, bad
}

// Bad pictures are passed over: the next good one of the split stands in their place, whoever meets them first. Each is
// counted once and reported once, by name.
func TestSkipBadPictures(t *testing.T) {
	t.Parallel()
	root, bad := spoilt(t)
	var mu sync.Mutex
	var reported []string
	read := func() (Dataset, []sum) {
		reported = nil
		set := open(t, "folder:"+root, Options{Seed: 2, Image: 16, SkipBad: true, OnSkip: func(err error) {
			mu.Lock()
			defer mu.Unlock()
			reported = append(reported, err.Error())
		}})
		return set, readAll(t, set, 2*set.TrainLen())
	}
	set, want := read()
	if n := Skipped(set); n != int64(len(bad)) || len(reported) != len(bad) {
		t.Errorf("%d skipped, %d reported, %d bad", n, len(reported), len(bad))
	}
	for _, path := range bad {
		if !slices.ContainsFunc(reported, func(text string) bool { return strings.HasPrefix(text, path+": ") }) {
			t.Errorf("%s is not reported", path)
		}
	}
	// From the end, and from many goroutines.
	other := open(t, "folder:"+root, Options{Seed: 2, Image: 16, SkipBad: true})
	var group sync.WaitGroup
	for worker := range int64(4) {
		group.Go(func() {
			dst := canvas(other)
			for i := 2*other.TrainLen() - 1 - worker; i >= 0; i -= 3 {
				if got := (sum{fill(t, other, Train, i, dst), digest(dst)}); got != want[i] {
					t.Errorf("sample %d depends on who reads it", i)
				}
			}
		})
	}
	group.Wait()
	for i, p := range set.(*folder).splits[Train] {
		if slices.Contains(bad, p.path) {
			continue
		}
		if want[i].label != p.class {
			t.Errorf("good sample %d has label %d", i, want[i].label)
		}
	}
}

// A sample that two workers find bad at the same time counts once; what is not in the bytes is no reason to skip.
func TestPassOnce(t *testing.T) {
	t.Parallel()
	calls := 0
	s := skips{options: &Options{SkipBad: true, OnSkip: func(error) { calls++ }}}
	for range 2 {
		must(t, s.pass("a", 3, fmt.Errorf("a: %w", ErrCorrupt)))
		must(t, s.pass("b", 1, fmt.Errorf("b: %w", ErrTooLarge)))
	}
	if s.Skipped() != 4 || calls != 2 {
		t.Errorf("%d skipped, %d reported", s.Skipped(), calls)
	}
	for _, err := range []error{ErrUnreadable, ErrNoImages, ErrEmptyClass, fs.ErrClosed} {
		if s.pass("c", 1, err) != err {
			t.Errorf("%v is skipped", err)
		}
	}
}

// A set of bad pictures alone ends with an error, not with a search without end.
func TestAllBad(t *testing.T) {
	t.Parallel()
	root := album(t, 5, "a")
	for i := range 5 {
		write(t, filepath.Join(root, "a", fmt.Sprintf("%03d.%s", i, []string{"png", "JPG"}[i%2])), []byte("no"))
	}
	set := open(t, "folder:"+root, Options{Image: 16, SkipBad: true})
	for range 2 {
		_, err := set.Fill(Train, 3, canvas(set))
		wrong(t, "all bad", err, ErrNoImages, "every one of the 4 train pictures")
	}
	if Skipped(set) != 4 {
		t.Errorf("%d skipped", Skipped(set))
	}
}

// Files that cannot be read now are an error, skipping or not: later they may be there.
func TestUnreadablePictures(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(path string) error{
		"gone":      os.Remove,
		"dangling":  func(path string) error { return errors.Join(os.Remove(path), os.Symlink(path+"x", path)) },
		"a pipe":    func(path string) error { return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o644)) },
		"forbidden": func(path string) error { return os.Chmod(path, 0) },
	} {
		if name == "forbidden" && os.Geteuid() == 0 {
			continue // nothing is forbidden to root
		}
		root := album(t, 2, "a")
		set := open(t, "folder:"+root, Options{Image: 16, SkipBad: true})
		for i := range 2 {
			must(t, spoil(filepath.Join(root, "a", []string{"000.png", "001.JPG"}[i])))
		}
		_, err := set.Fill(Train, 0, canvas(set))
		wrong(t, name, err, ErrUnreadable, filepath.Join(root, "a"))
		if Skipped(set) != 0 {
			t.Errorf("%s: skipped", name)
		}
		if name == "gone" {
			wrong(t, name, err, fs.ErrNotExist)
		}
	}
}

// Each way in which CIFAR-10's files can be wrong has its own error; those in the records can be skipped.
func TestBadCIFAR(t *testing.T) {
	t.Parallel()
	label := cifarBytes(1, 20)
	label[3*cifarRecord] = 10
	for name, c := range map[string]struct {
		file    string
		content []byte
		err     error
		text    string
		skipped int64 // 0 where it cannot be skipped
	}{
		"label":       {"data_batch_1.bin", label, ErrLabel, "data_batch_1.bin: record 3: label out of range: 10; CIFAR-10 has 0 to 9", 1},
		"truncated":   {"data_batch_2.bin", cifarBytes(1, 20)[:cifarRecord*19+700], ErrTruncated, "data_batch_2.bin: record 19: truncated file: 700 of 3073 bytes", 1},
		"empty":       {"test_batch.bin", nil, ErrTruncated, "test_batch.bin: truncated file: it is empty", 0},
		"empty class": {"test_batch.bin", cifarBytes(1, 9), ErrEmptyClass, "no test image has label 9", 0},
		"no images":   {"test_batch.bin", []byte{99}, ErrTruncated, "record 0", 0},
	} {
		root := cifarFolder(t)
		write(t, filepath.Join(root, c.file), c.content)
		_, err := Open("cifar10:"+root, Options{Image: 32})
		wrong(t, name, err, c.err, c.text)
		set, err := Open("cifar10:"+root, Options{Image: 32, SkipBad: true})
		if name == "no images" {
			wrong(t, name, err, ErrNoImages, "the test split is empty")
		} else if (err == nil) != (c.skipped > 0) || err == nil && Skipped(set) != c.skipped {
			t.Errorf("%s, skipping: %v", name, err)
		}
		if err == nil {
			if set.TrainLen() != 40-c.skipped {
				t.Errorf("%s, skipping: %d images", name, set.TrainLen())
			}
			readAll(t, set, set.TrainLen())
		}
	}
	for _, file := range []string{"data_batch_*.bin", "test_batch.bin"} {
		root := cifarFolder(t)
		all, err := filepath.Glob(filepath.Join(root, file))
		must(t, err)
		for _, path := range all {
			must(t, os.Remove(path))
		}
		_, err = Open("cifar10:"+root, Options{Image: 32, SkipBad: true})
		wrong(t, file, err, ErrNoImages, "has no "+file)
	}
	_, err := Open("cifar10:"+filepath.Join(t.TempDir(), "gone"), Options{Image: 32})
	wrong(t, "gone", err, ErrUnreadable, "gone")
	root := t.TempDir()
	must(t, os.Symlink(cifarFolder(t), filepath.Join(root, "cifar-10-batches-bin")))
	if set := open(t, "cifar10:"+root, Options{Image: 32}); set.TrainLen() != 40 {
		t.Errorf("%d images in the archive's folder", set.TrainLen())
	}
}

// Each way in which IDX files can be wrong has its own error; those of single samples can be skipped.
func TestBadIDX(t *testing.T) {
	t.Parallel()
	const pixels, labels, tests = "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-labels-idx1-ubyte"
	good := idxFiles()
	cut := func(name string, n int) []byte { return good[name][:len(good[name])-n] }
	label := slices.Clone(good[tests])
	label[8+5] = 10
	gap := slices.Clone(good[labels])
	gap[8+5] = 12
	packed := zipped(t, good[pixels])
	flipped := slices.Clone(packed)
	flipped[len(packed)/2] ^= 0x10
	sum := slices.Clone(packed)
	sum[len(packed)-6] ^= 1
	for name, c := range map[string]struct {
		file    string
		content []byte
		err     error
		text    string
		skipped int64
	}{
		"magic":            {pixels, idxBytes(nil, 40, 28), ErrCorrupt, "it starts with 00 00 08 02", 0},
		"type":             {labels, append([]byte{0, 0, 13, 1}, good[labels][4:]...), ErrCorrupt, "00 00 0d 01", 0},
		"no header":        {labels, good[labels][:6], ErrTruncated, "after 6 of 8 bytes of the header", 0},
		"empty":            {labels, nil, ErrTruncated, "it is empty", 0},
		"images cut":       {pixels, cut(pixels, 28*28+1), ErrTruncated, pixels + ": truncated file: 38 of 40 samples are whole", 2},
		"labels cut":       {labels, cut(labels, 3), ErrTruncated, labels + ": truncated file: 37 of 40", 3},
		"images long":      {pixels, append(slices.Clone(good[pixels]), 1), ErrCorrupt, "it goes on after its 31360 bytes", 0},
		"counts":           {labels, idxBytes(running(30, 10), 30), ErrCorrupt, "has 30 labels", 0},
		"absurd":           {pixels, idxBytes(nil, 1<<31, 1<<31, 1<<31), ErrTooLarge, "2147483648", 0},
		"absurd count":     {pixels, idxBytes(nil, 1<<32-1, 28, 28), ErrTooLarge, "4294967295", 0},
		"wide":             {pixels, idxBytes(make([]byte, 40*5000), 40, 1, 5000), ErrTooLarge, "1x5000", 0},
		"flat":             {pixels, idxBytes(nil, 40, 0, 28), ErrCorrupt, "0x28", 0},
		"other size":       {pixels, idxBytes(make([]byte, 40*20*20), 40, 20, 20), ErrCorrupt, "28x28 pixels, but 20x20 in training", 0},
		"test label":       {tests, label, ErrLabel, tests + ": label 5: label out of range: 10; the training labels are 0 to 9", 1},
		"empty class":      {labels, gap, ErrEmptyClass, "no train image has label 10, of 0 to 12", 0},
		"gzip cut":         {pixels, packed[:len(packed)/2], ErrTruncated, pixels, 1},
		"gzip trailer cut": {pixels, packed[:len(packed)-4], ErrTruncated, "unexpected EOF", 0},
		"gzip flipped":     {pixels, flipped, ErrCorrupt, pixels, 0},
		"gzip checksum":    {pixels, sum, ErrCorrupt, "checksum", 0},
		"gzip header":      {pixels, []byte("\x1f\x8bxyz"), ErrTruncated, pixels, 0},
	} {
		files := maps.Clone(good)
		files[c.file] = c.content
		root := idxFolder(t, files)
		_, err := Open("idx:"+root, Options{Image: 28})
		wrong(t, name, err, c.err, c.text)
		set, err := Open("idx:"+root, Options{Image: 28, SkipBad: true})
		if (err == nil) != (c.skipped > 0) {
			t.Errorf("%s, skipping: %v", name, err)
		}
		if err == nil {
			if n := 60 - set.TrainLen() - set.TestLen(); n != Skipped(set) || name != "gzip cut" && n != c.skipped || n < c.skipped {
				t.Errorf("%s, skipping: %d of 60 are missing, %d skipped", name, n, Skipped(set))
			}
			readAll(t, set, set.TrainLen())
		}
	}
}

// The four files are found or missed by name.
func TestIDXNames(t *testing.T) {
	t.Parallel()
	for _, missing := range slices.Sorted(maps.Keys(idxFiles())) {
		files := idxFiles()
		delete(files, missing)
		_, err := Open("idx:"+idxFolder(t, files), Options{Image: 28})
		wrong(t, missing, err, ErrNoImages, "has no "+missing)
	}
	files := idxFiles()
	files["train-labels-idx1-ubyte.gz"] = []byte("not looked at")
	open(t, "idx:"+idxFolder(t, files), Options{Image: 28})
	files["emnist-train-labels-idx1-ubyte"] = files["train-labels-idx1-ubyte"]
	_, err := Open("idx:"+idxFolder(t, files), Options{Image: 28})
	wrong(t, "two", err, ErrOption, "holds both emnist-train-labels-idx1-ubyte and train-labels-idx1-ubyte")
	none := idxFiles()
	none["train-images-idx3-ubyte"], none["train-labels-idx1-ubyte"] = idxBytes(nil, 0, 28, 28), idxBytes(nil, 0)
	_, err = Open("idx:"+idxFolder(t, none), Options{Image: 28})
	wrong(t, "none", err, ErrNoImages, "train-images-idx3-ubyte: no images")
	_, err = Open("idx:"+filepath.Join(t.TempDir(), "gone"), Options{Image: 28})
	wrong(t, "gone", err, ErrUnreadable, "gone")
}
