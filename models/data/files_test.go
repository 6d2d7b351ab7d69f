package data

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A sample of a file set is a function of (seed, split, index), whoever reads it and in any order. Another set opened on the same files
// gives the same samples. Test samples and plain training samples repeat. Augmented samples change with the epoch and the seed; their
// labels do not.
func TestFileSamplesArePure(t *testing.T) {
	t.Parallel()
	eachFiles(t, func(t *testing.T, name string) {
		set := open(t, name, Options{Seed: 1, Image: 24})
		n := set.TrainLen()
		want := readAll(t, set, 2*n)
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() {
				if got := readAll(t, open(t, name, Options{Seed: 1, Image: 24}), 2*n); !slices.Equal(got, want) {
					t.Error("another reader sees other samples")
				}
				if got := readAll(t, set, 2*n); !slices.Equal(got, want) {
					t.Error("a second pass sees other samples")
				}
			})
		}
		group.Wait()
		plain := readAll(t, open(t, name, Options{Seed: 1, Image: 24, NoAugment: true}), 2*n)
		if strings.HasPrefix(name, "folder:") { // another seed splits a folder otherwise
			return
		}
		other := readAll(t, open(t, name, Options{Seed: 2, Image: 24}), 2*n)
		same := 0
		for i := range n {
			if plain[i] != plain[i+n] || want[i].label != want[i+n].label || want[i].label != plain[i].label {
				t.Errorf("sample %d: plain %v %v, augmented %v %v", i, plain[i], plain[i+n], want[i], want[i+n])
			}
			if want[i] == want[i+n] || want[i] == other[i] {
				same++
			}
		}
		if same > int(n)/4 {
			t.Errorf("%d of %d samples have the same augmentation in another epoch or with another seed", same, n)
		}
		if !slices.Equal(want[2*n:], plain[2*n:]) || !slices.Equal(want[2*n:], other[2*n:]) {
			t.Error("test samples depend on the seed")
		}
	})
}

type sum struct {
	label int
	image [sha256.Size]byte
}

// readAll returns training samples, then two passes of the test samples.
func readAll(t testing.TB, set Dataset, train int64) (all []sum) {
	dst := canvas(set)
	for split, n := range []int64{train, 2 * set.TestLen()} {
		for i := range n {
			label := fill(t, set, Split(split), i, dst)
			all = append(all, sum{label, digest(dst)})
		}
	}
	return all
}

// In a folder that is not split by the user, plain samples repeat each epoch and augmented ones change.
func TestFolderEpochs(t *testing.T) {
	t.Parallel()
	name := "folder:" + album(t, 10, "ant", "bee")
	set, plain := open(t, name, Options{Seed: 1, Image: 24}), open(t, name, Options{Seed: 1, Image: 24, NoAugment: true})
	n := set.TrainLen()
	a, p := readAll(t, set, 2*n), readAll(t, plain, 2*n)
	for i := range n {
		if p[i] != p[i+n] || a[i].label != a[i+n].label || a[i] == a[i+n] || a[i].label != p[i].label {
			t.Errorf("sample %d: plain %v %v, augmented %v %v", i, p[i], p[i+n], a[i], a[i+n])
		}
	}
	test := a[2*n:]
	if half := len(test) / 2; !slices.Equal(test[:half], test[half:]) || !slices.Equal(test, p[2*n:]) {
		t.Error("test samples change")
	}
}

// Batches go on after a restart at any step as if there had been none.
func TestFileResume(t *testing.T) {
	t.Parallel()
	eachFiles(t, func(t *testing.T, name string) {
		const size = 7
		first := newBatcher(t, open(t, name, Options{Seed: 4, Image: 16}), Train, size, 9)
		images, again := make([]float32, size*16*16*3), make([]float32, size*16*16*3)
		labels, labelsAgain := make([]int32, size), make([]int32, size)
		for step := range int64(20) {
			fillBatch(t, first, step, images, labels)
			if step%3 != 0 {
				continue
			}
			second := newBatcher(t, open(t, name, Options{Seed: 4, Image: 16}), Train, size, 9)
			fillBatch(t, second, step, again, labelsAgain)
			if !slices.Equal(images, again) || !slices.Equal(labels, labelsAgain) {
				t.Errorf("batch %d differs after a restart", step)
			}
		}
	})
}

// A reader states its name, shape, classes and lengths, and Open lists the names that it knows.
func TestFileSets(t *testing.T) {
	t.Parallel()
	want := map[string][3]int64{"folder": {3, 24, 6}, "cifar10": {10, 40, 10}, "idx": {10, 40, 20}}
	eachFiles(t, func(t *testing.T, name string) {
		set := open(t, name, Options{Image: 20, Channels: 1})
		kind, _, _ := strings.Cut(name, ":")
		got := [3]int64{int64(set.Classes()), set.TrainLen(), set.TestLen()}
		if set.Name() != name || set.Shape() != [3]int{20, 20, 1} || got != want[kind] || Skipped(set) != 0 {
			t.Errorf("%s: %s, %v, %v, %d skipped", name, set.Name(), set.Shape(), got, Skipped(set))
		}
		for _, o := range []Options{{Image: 7}, {Image: 5000}, {Image: 16, Channels: -1}} {
			if _, err := Open(name, o); !errors.Is(err, ErrOption) {
				t.Errorf("%+v: %v", o, err)
			}
		}
		if _, err := Open(name, Options{Image: 16, Channels: 4}); kind != "idx" && !errors.Is(err, ErrOption) {
			t.Errorf("4 channels: %v", err)
		}
	})
	for name, want := range map[string]error{"folder": ErrOption, "idx:": ErrOption, "cifar10": ErrOption, "flder:x": ErrUnknown, "digits:x": ErrUnknown} {
		_, err := Open(name, Options{Image: 16})
		if !errors.Is(err, want) {
			t.Errorf("Open(%q) = %v, want %v", name, err, want)
		}
		if want == ErrUnknown && !strings.Contains(err.Error(), "known are clusters, digits, glyphs, shapes, cifar10:PATH, folder:PATH, idx:PATH, masks:PATH, npy:PATH, jsonl:PATH, nanogpt:PATH, opticks, parquet:PATH, text:PATH") {
			t.Errorf("Open(%q) = %v does not list what there is", name, err)
		}
	}
	if Skipped(small(t, "digits")) != 0 {
		t.Error("a built-in set skips")
	}
}

// Images held in memory are served without allocation, at their own size.
func TestStoredNoAllocation(t *testing.T) {
	// Serial: it counts allocations.
	for name, side := range map[string]int{"cifar10:" + cifarFolder(t): 32, "idx:" + idxFolder(t, idxFiles()): 28} {
		set := open(t, name, Options{Image: side})
		dst, i := canvas(set), int64(0)
		if n := testing.AllocsPerRun(50, func() { fill(t, set, Train, i, dst); i++ }); n != 0 {
			t.Errorf("%s: a sample makes %v allocations", name, n)
		}
	}
}

// value normalizes a pixel from 0 to 255 by a mean and a deviation.
func value(pixel uint8, mean, deviation float64) float64 {
	return (float64(pixel)/255 - mean) / deviation
}

// candidate is an oracle without shortcuts: a stored image moved by (dx, dy) and perhaps mirrored.
func candidate(pixels []byte, side, dx, dy int, mirror bool, mean, deviation []float64) (out []float32) {
	for y := range side {
		for x := range side {
			if mirror {
				x = side - 1 - x
			}
			for c := range 3 {
				v := uint8(0)
				if sx, sy := x-dx, y-dy; sx >= 0 && sx < side && sy >= 0 && sy < side {
					v = pixels[(c*side+sy)*side+sx]
				}
				out = append(out, float32(value(v, mean[c], deviation[c])))
			}
		}
	}
	return out
}

func near(a, b []float32) bool {
	for i, v := range a {
		if math.Abs(float64(v-b[i])) > 1e-4 {
			return false
		}
	}
	return len(a) == len(b)
}

// A CIFAR-10 image is the bytes of its record; a training image is one of the 81 crops of the padded record, mirrored or
// not, and all of them occur.
func TestCIFARImages(t *testing.T) {
	t.Parallel()
	name := "cifar10:" + cifarFolder(t)
	records := append(cifarBytes(1, 20), cifarBytes(2, 20)...)
	mean, deviation := cifarTones.mean[:], cifarTones.deviation[:]
	set := open(t, name, Options{Image: 32, NoAugment: true})
	dst := canvas(set)
	for i := range 40 {
		label := fill(t, set, Train, int64(i), dst)
		record := records[i*cifarRecord:][:cifarRecord]
		if label != int(record[0]) || !near(dst, candidate(record[1:], 32, 0, 0, false, mean, deviation)) {
			t.Fatalf("image %d is not the record's, or its label %d", i, label)
		}
	}
	seen := augmentations(t, open(t, name, Options{Seed: 3, Image: 32}), records[1:cifarRecord], 32, 4, 40, mean, deviation)
	if len(seen) < 130 { // of 162; 700 draws leave 2 out on average
		t.Errorf("%d of 162 augmentations occur", len(seen))
	}
}

// augmentations identifies 700 epochs' augmentations of sample 0.
func augmentations(t *testing.T, set Dataset, pixels []byte, side, reach int, epoch int64, mean, deviation []float64) map[string]bool {
	all := map[[sha256.Size]byte]string{}
	for dx := -reach; dx <= reach; dx++ {
		for dy := -reach; dy <= reach; dy++ {
			for _, mirror := range []bool{false, true} {
				all[digest(candidate(pixels, side, dx, dy, mirror, mean, deviation))] = fmt.Sprint(dx, dy, mirror)
			}
		}
	}
	seen := map[string]bool{}
	dst := canvas(set)
	for e := range int64(700) {
		fill(t, set, Train, e*epoch, dst)
		what, ok := all[digest(dst)]
		if !ok {
			t.Fatalf("the sample of epoch %d is no augmentation of the image", e)
		}
		seen[what] = true
	}
	return seen
}

// An IDX image is the bytes of the file with zero mean and unit variance; a training image is moved by at most 2 pixels
// and never mirrored. A zipped file gives the same, and so do names with dots.
func TestIDXImages(t *testing.T) {
	t.Parallel()
	files := idxFiles()
	pixels := files["train-images-idx3-ubyte"][16:]
	packed, dotted := map[string][]byte{}, map[string][]byte{}
	for name, content := range files {
		packed["emnist-"+name+".gz"] = zipped(t, content)
		dotted[strings.Replace(strings.Replace(name, "-idx", ".idx", 1), "t10k", "test", 1)] = content
	}
	names := []string{"idx:" + idxFolder(t, files), "idx:" + idxFolder(t, packed), "idx:" + idxFolder(t, dotted)}
	want := readAll(t, open(t, names[0], Options{Image: 28, Seed: 5}), 80)
	for _, name := range names[1:] {
		if !slices.Equal(readAll(t, open(t, name, Options{Image: 28, Seed: 5}), 80), want) {
			t.Errorf("%s differs", name)
		}
	}
	set := open(t, names[0], Options{Image: 28, NoAugment: true})
	dst := canvas(set)
	var sum, squares float64
	for i := range int64(40) {
		fill(t, set, Train, i, dst)
		for _, v := range dst {
			sum, squares = sum+float64(v), squares+float64(v)*float64(v)
		}
	}
	if n := float64(40 * len(dst)); math.Abs(sum/n) > 1e-4 || math.Abs(squares/n-1) > 1e-3 {
		t.Errorf("mean %g, mean square %g", sum/n, squares/n)
	}
	tone := measure(pixels)
	mean, deviation := slices.Repeat([]float64{tone.greyMean}, 3), slices.Repeat([]float64{tone.greyDeviation}, 3)
	grey := slices.Repeat(pixels[:28*28], 3)
	seen := augmentations(t, open(t, names[0], Options{Seed: 3, Image: 28}), grey, 28, 2, 40, mean, deviation)
	if len(seen) != 25 || seen["0 0 true"] {
		t.Errorf("%d of 25 shifts occur: %v", len(seen), seen)
	}
}

// Images of one tone are not divided by zero.
func TestOneTone(t *testing.T) {
	t.Parallel()
	files := idxFiles()
	clear(files["train-images-idx3-ubyte"][16:])
	set := open(t, "idx:"+idxFolder(t, files), Options{Image: 28, Channels: 1})
	dst := canvas(set)
	fill(t, set, Train, 0, dst)
	if slices.Min(dst) != 0 || slices.Max(dst) != 0 {
		t.Errorf("values %g to %g", slices.Min(dst), slices.Max(dst))
	}
}

// Scaled images keep their tones: a stored image of one color is that color at every size, edges included.
func TestScaledTones(t *testing.T) {
	t.Parallel()
	root := cifarFolder(t)
	records := slices.Concat(cifarBytes(1, 20), cifarBytes(2, 20))
	for i := range records {
		if i%cifarRecord != 0 {
			records[i] = uint8(60 * (1 + (i%cifarRecord-1)/1024)) // 60, 120, 180
		}
	}
	write(t, filepath.Join(root, "data_batch_1.bin"), records)
	must(t, os.Remove(filepath.Join(root, "data_batch_2.bin")))
	for _, side := range []int{8, 31, 32, 33, 90} {
		set := open(t, "cifar10:"+root, Options{Image: side, NoAugment: true})
		dst := canvas(set)
		fill(t, set, Train, 7, dst)
		for i, v := range dst {
			if want := value(uint8(60*(1+i%3)), cifarTones.mean[i%3], cifarTones.deviation[i%3]); math.Abs(float64(v)-want) > 1e-4 {
				t.Fatalf("at %d pixels value %d is %g, want %g", side, i, v, want)
			}
		}
	}
}
