package data

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
)

func open(t testing.TB, name string, o Options) Dataset {
	t.Helper()
	set, err := Open(name, o)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// small opens a data set with 16x16 images of one channel.
func small(t testing.TB, name string) Dataset {
	return open(t, name, Options{Seed: 1, Image: 16, Channels: 1})
}

func canvas(set Dataset) []float32 {
	s := set.Shape()
	return make([]float32, s[0]*s[1]*s[2])
}

// digest returns a hash of the bits of an image.
func digest(pixels []float32) (sum [sha256.Size]byte) {
	h := sha256.New()
	addTo(h, pixels)
	h.Sum(sum[:0])
	return sum
}

func addTo(w io.Writer, pixels []float32) {
	bits := make([]byte, 4*len(pixels))
	for i, v := range pixels {
		binary.LittleEndian.PutUint32(bits[4*i:], math.Float32bits(v))
	}
	_, _ = w.Write(bits) // a hash never fails
}

func each(t *testing.T, test func(t *testing.T, set Dataset)) {
	for _, info := range Known() {
		t.Run(info.Name, func(t *testing.T) { test(t, small(t, info.Name)) })
	}
}

// The samples are what they were when the package was written, on every platform: a change would make runs
// incomparable. The hash is over images and labels of both splits, augmentation included.
func TestGolden(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"clusters": "0133257e0e1bb5ca354478ac",
		"digits":   "f75fea1533305fd3364e260d",
		"glyphs":   "93990471051b3cd3bff3e74a",
		"shapes":   "5c5141e64fcef41a6a501d84",
	} {
		set := open(t, name, Options{Seed: 7, Image: 24, Channels: 2})
		dst := canvas(set)
		h := sha256.New()
		for _, split := range []Split{Train, Test} {
			for i := range int64(400) {
				label := fill(t, set, split, i*5, dst)
				h.Write([]byte{byte(label)})
				addTo(h, dst)
			}
		}
		if got := hex.EncodeToString(h.Sum(nil)[:12]); got != want {
			t.Errorf("%s: the samples hash to %s, want %s", name, got, want)
		}
	}
}

// A sample depends on nothing but seed, split and index: not on what was asked before, nor on who else asks.
func TestPure(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, set Dataset) {
		const n = 300
		type sample struct {
			label int
			sum   [sha256.Size]byte
		}
		take := func(split Split, i int64, dst []float32) sample {
			label := fill(t, set, split, i, dst)
			return sample{label, digest(dst)}
		}
		var want [2][n]sample
		dst := canvas(set)
		for i := range int64(n) {
			want[Train][i], want[Test][i] = take(Train, i, dst), take(Test, i, dst)
		}
		var group sync.WaitGroup
		for worker := range uint64(4) {
			group.Go(func() {
				dst := canvas(set)
				for _, i := range rand.New(rand.NewPCG(worker, 0)).Perm(n) {
					for _, split := range []Split{Test, Train} {
						if take(split, int64(i), dst) != want[split][i] {
							t.Errorf("%v sample %d is another one the second time", split, i)
						}
					}
				}
			})
		}
		group.Wait()
	})
}

// No image is in both splits, and none twice.
func TestSplitsAreDisjoint(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, set Dataset) {
		seen := map[[sha256.Size]byte]string{}
		dst := canvas(set)
		for _, split := range []Split{Test, Train} {
			for i := range max(set.TestLen(), set.TrainLen(), 1797) {
				if split == Test && i >= set.TestLen() {
					break
				}
				fill(t, set, split, i, dst)
				where := fmt.Sprint(split, " ", i)
				if other, ok := seen[digest(dst)]; ok {
					t.Errorf("%s is the image of %s", where, other)
				}
				seen[digest(dst)] = where
			}
		}
		if len(seen) < 1797 {
			t.Errorf("%d images were looked at", len(seen))
		}
	})
}

// Every picture of the file is in exactly one split; no two are equal; the test split is 36 of each class,
// whatever the seed.
func TestDigitsSplit(t *testing.T) {
	t.Parallel()
	splits, err := loadDigits()
	if err != nil {
		t.Fatal(err)
	}
	if len(splits[Train]) != 1437 || len(splits[Test]) != 360 {
		t.Fatalf("%d training and %d test pictures", len(splits[Train]), len(splits[Test]))
	}
	seen := map[string]bool{}
	var test [10]int
	for split, pictures := range splits {
		for _, d := range pictures {
			seen[string(d.pix)] = true
			test[d.class] += split
		}
	}
	if len(seen) != 1797 {
		t.Errorf("%d different pictures of 1797", len(seen))
	}
	for class, n := range test {
		if n != 36 {
			t.Errorf("%d test pictures of class %d", n, class)
		}
	}
	a, b := open(t, "digits", Options{Seed: 1, Image: 8}), open(t, "digits", Options{Seed: 2, Image: 8})
	x, y := canvas(a), canvas(b)
	for i := range a.TestLen() {
		if fill(t, a, Test, i, x) != fill(t, b, Test, i, y) || !slices.Equal(x, y) {
			t.Fatalf("test picture %d depends on the seed", i)
		}
	}
}

// At 8x8 a test image is the picture of the file, value by value.
func TestDigitsAreThePictures(t *testing.T) {
	t.Parallel()
	splits, err := loadDigits()
	if err != nil {
		t.Fatal(err)
	}
	set := open(t, "digits", Options{Image: 8, Channels: 1, NoAugment: true})
	tone := set.(*digits).tone
	dst := canvas(set)
	compared := 0
	for split, pictures := range splits {
		for i, d := range pictures {
			if label := fill(t, set, Split(split), int64(i), dst); label != d.class {
				t.Fatalf("%v %d has label %d, want %d", Split(split), i, label, d.class)
			}
			for k, v := range dst {
				grey := float64(v-tone.base) / float64(tone.gain) * 17 // a full picture pixel is 240 of 255
				want := float64(d.pix[(k/8+1)*10+k%8+1]) / 15
				if math.Abs(grey-want) > 1e-3 {
					t.Fatalf("%v %d pixel %d is %g, want %g", Split(split), i, k, grey, want)
				}
				compared++
			}
		}
	}
	if compared != 1797*64 {
		t.Errorf("%d pixels were compared", compared)
	}
}

// Training samples of later epochs are augmented anew, with the label they had; without augmentation they repeat.
// Test samples always repeat.
func TestEpochs(t *testing.T) {
	t.Parallel()
	set, plain := small(t, "digits"), open(t, "digits", Options{Image: 16, Channels: 1, NoAugment: true})
	first, second := canvas(set), canvas(set)
	for i := range set.TrainLen() {
		a, b := fill(t, set, Train, i, first), fill(t, set, Train, i+set.TrainLen(), second)
		if a != b || slices.Equal(first, second) {
			t.Fatalf("sample %d has labels %d and %d in two epochs, the images equal: %v", i, a, b, slices.Equal(first, second))
		}
		fill(t, plain, Train, i, first)
		fill(t, plain, Train, i+3*set.TrainLen(), second)
		if !slices.Equal(first, second) {
			t.Fatalf("sample %d changes without augmentation", i)
		}
	}
	each(t, func(t *testing.T, set Dataset) {
		for i := range set.TestLen() {
			if fill(t, set, Test, i, first) != fill(t, set, Test, i+2*set.TestLen(), second) || !slices.Equal(first, second) {
				t.Fatalf("test sample %d changes", i)
			}
		}
	})
}

func TestLabels(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, set Dataset) {
		dst := canvas(set)
		for _, split := range []Split{Train, Test} {
			counts := make([]int, set.Classes())
			n := set.TestLen()
			if split == Train {
				n = max(set.TrainLen(), 62*30)
			}
			for i := range n {
				counts[fill(t, set, split, i, dst)]++
			}
			if Masked(set) { // no shape is of the ground
				counts = counts[1:]
			}
			lo, hi := slices.Min(counts), slices.Max(counts)
			if lo == 0 || float64(hi) > 1.1*float64(lo) || split == Test && lo != hi {
				t.Errorf("%v: classes have %d to %d samples", split, lo, hi)
			}
		}
	})
}

// The seed changes what is random.
func TestSeed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, a Dataset) {
		b := open(t, a.Name(), Options{Seed: 2, Image: 16, Channels: 1})
		x, y := canvas(a), canvas(a)
		equal := 0
		for i := range int64(100) {
			fill(t, a, Train, i, x)
			fill(t, b, Train, i, y)
			if slices.Equal(x, y) {
				equal++
			}
		}
		if equal > 0 {
			t.Errorf("%d of 100 samples are the same with another seed", equal)
		}
	})
}

// Pixels have about zero mean and unit variance, at any size, and are the same in all channels.
func TestNormalized(t *testing.T) {
	t.Parallel()
	for _, info := range Known() {
		for _, side := range []int{16, 32, 100} {
			set := open(t, info.Name, Options{Image: side})
			dst := canvas(set)
			var n, sum, squares float64
			for i := range int64(310) {
				fill(t, set, Train, i, dst)
				for k, v := range dst {
					n, sum, squares = n+1, sum+float64(v), squares+float64(v)*float64(v)
					if v != dst[k/3*3] && !info.Numbers {
						t.Fatalf("%s: channels of a grey image differ", info.Name)
					}
				}
			}
			mean := sum / n
			variance := squares/n - mean*mean
			if math.Abs(mean) > 0.1 || variance < 0.6 || variance > 1.4 {
				t.Errorf("%s at %d: mean %.3f, variance %.3f", info.Name, side, mean, variance)
			}
		}
	}
}

func TestNoAllocation(t *testing.T) {
	// Serial: it counts allocations.
	each(t, func(t *testing.T, set Dataset) {
		b, err := NewBatcher(set, Train, 16, 1)
		if err != nil {
			t.Fatal(err)
		}
		images, labels := make([]float32, 16*16*16), make([]int32, 16*Labels(set))
		step := int64(0)
		if n := testing.AllocsPerRun(50, func() { fillBatch(t, b, step, images, labels); step++ }); n != 0 {
			t.Errorf("a batch makes %v allocations", n)
		}
	})
}

func TestOpenErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		o    Options
		err  error
		text string
	}{
		{"mnist", Options{Image: 32}, ErrUnknown, `unknown data set "mnist": known are clusters, digits, glyphs, shapes`},
		{"", Options{Image: 32}, ErrUnknown, "known are clusters, digits, glyphs, shapes"},
		{"digits", Options{}, ErrOption, "data set digits with images of 0 pixels a side; 8 to 4096 work"},
		{"glyphs", Options{Image: 8}, ErrOption, "16 to 4096 work"},
		{"glyphs", Options{Image: 1 << 20}, ErrOption, "16 to 4096 work"},
		{"shapes", Options{Image: 15}, ErrOption, "16 to 4096 work"},
		{"shapes", Options{Image: 16, Classes: 1}, ErrOption, "data set shapes with 1 classes; 2, the ground and circles, to 22 work"},
		{"shapes", Options{Image: 16, Classes: 23}, ErrOption, "23 classes"},
		{"digits", Options{Image: 1, Channels: 13, Axes: 1}, ErrOption, "data set digits has images, and the model reads numbers, N,F: give it such, as in --data clusters or npy:PATH"},
		{"clusters", Options{Image: 1 << 21, Channels: 80, Axes: 2}, ErrOption, "samples of 80x2097152 numbers; 1 to 1048576 of each work"},
		{"digits", Options{Image: 32, Channels: -1}, ErrOption, "-1 channels; 1 to 1024 work"},
	} {
		set, err := Open(c.name, c.o)
		if set != nil || !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("Open(%q, %+v) = %v, %v; want %q", c.name, c.o, set, err, c.text)
		}
	}
	for _, info := range Known() {
		set := open(t, info.Name, Options{Image: 40, Channels: 5})
		if set.Name() != info.Name || set.Shape() != [3]int{40, 40, 5} || set.Classes() != map[string]int{"clusters": 10, "digits": 10, "glyphs": 62, "shapes": 4}[info.Name] || info.Summary == "" || info.Source == "" {
			t.Errorf("%s is %s of shape %v with %d classes: %q, %q", info.Name, set.Name(), set.Shape(), set.Classes(), info.Summary, info.Source)
		}
	}
}

func TestReadDigitsErrors(t *testing.T) {
	t.Parallel()
	row := strings.Repeat("16,", 64)
	if all, err := readDigits(strings.NewReader(row + "9\n" + row + "0\n")); err != nil || len(all) != 2 || all[0].class != 9 {
		t.Errorf("two good rows: %d, %v", len(all), err)
	}
	for text, want := range map[string]string{
		row + "10\n":                   `row 1: column 65: "10" is not a number from 0 to 9`,
		row + "1\n17," + row[3:] + "1": `row 2: column 1: "17" is not a number from 0 to 16`,
		"-1," + row[3:] + "1":          `column 1: "-1"`,
		row + "x":                      `"x" is not a number`,
		"1,2,3":                        "wrong number of fields",
		"\"" + row:                     "quote",
	} {
		if _, err := readDigits(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %s", err, want)
		}
	}
}

func FuzzReadDigits(f *testing.F) {
	f.Add(strings.Repeat("16,", 64) + "9\n")
	f.Add(strings.Repeat("0,", 64) + "10\n")
	f.Add("\"1\",2\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := readDigits(strings.NewReader(text))
		for _, d := range all {
			if err == nil && (d.class < 0 || d.class > 9 || slices.Max(d.pix) > 240) {
				t.Errorf("class %d, brightest pixel %d", d.class, slices.Max(d.pix))
			}
		}
	})
}
