package data

import (
	"errors"
	"fmt"
	"image"
	"image/color"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// solo makes a folder set of one class with the given picture as every training and test picture.
func solo(t testing.TB, o Options, img image.Image) Dataset {
	t.Helper()
	root := t.TempDir()
	write(t, filepath.Join(root, "train", "only", "a.png"), pngBytes(t, img))
	write(t, filepath.Join(root, "test", "only", "b.png"), pngBytes(t, img))
	return open(t, "folder:"+root, o)
}

// A test image is the middle of the picture: 7/8 of its shorter side. Where that needs no scaling, values are exact.
func TestCenterCrop(t *testing.T) {
	t.Parallel()
	for _, size := range [][2]int{{64, 64}, {100, 64}, {64, 90}} {
		set := solo(t, Options{Image: 56}, coded(size[0], size[1]))
		dst := canvas(set)
		fill(t, set, Test, 0, dst)
		x0, y0 := (size[0]-56)/2, (size[1]-56)/2
		for y := range 56 {
			for x := range 56 {
				for c, v := range []uint8{uint8(x0 + x), uint8(y0 + y), 128} {
					if got, want := float64(dst[(y*56+x)*3+c]), value(v, imagenet.mean[c], imagenet.deviation[c]); math.Abs(got-want) > 1e-5 {
						t.Fatalf("%v: pixel (%d, %d) channel %d is %g, want %g", size, x, y, c, got, want)
					}
				}
			}
		}
	}
}

// Training images are crops of the stated areas and shapes from all over the picture, half of them mirrored.
func TestRandomResizedCrop(t *testing.T) {
	t.Parallel()
	const w, h, side, draws = 200, 150, 32, 240
	set := solo(t, Options{Image: side, Seed: 11}, coded(w, h))
	dst := canvas(set)
	position := func(x, y, c int) float64 {
		return 255 * (float64(dst[(y*side+x)*3+c])*imagenet.deviation[c] + imagenet.mean[c])
	}
	mirrored, small, large := 0, 0, 0
	for i := range int64(draws) {
		fill(t, set, Train, i, dst)
		// From the first to the last pixel center it is (side-1)/side of the crop. Edges and rounding blur by a pixel or two.
		cw := (position(side-1, 16, 0) - position(0, 16, 0)) * side / (side - 1)
		ch := (position(16, side-1, 1) - position(16, 0, 1)) * side / (side - 1)
		if cw < 0 {
			mirrored, cw = mirrored+1, -cw
		}
		share, aspect := cw*ch/(w*h), cw/ch
		if share < 0.06 || share > 1.02 || aspect < 0.70 || aspect > 1.42 {
			t.Errorf("draw %d: a crop of %.1fx%.1f", i, cw, ch)
		}
		if share < 0.3 {
			small++
		}
		if share > 0.7 {
			large++
		}
	}
	if mirrored < draws*4/10 || mirrored > draws*6/10 || small < draws/8 || large < draws/10 {
		t.Errorf("of %d draws %d are mirrored, %d small, %d large", draws, mirrored, small, large)
	}
}

// Every crop lies in its picture and has at least one pixel, also of pictures a pixel wide.
func TestCropsFit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		x, y := rapid.IntRange(-9, 9).Draw(rt, "x"), rapid.IntRange(-9, 9).Draw(rt, "y")
		b := image.Rect(x, y, x+rapid.IntRange(1, 2000).Draw(rt, "w"), y+rapid.IntRange(1, 2000).Draw(rt, "h"))
		r := rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0)
		for _, crop := range []image.Rectangle{randomCrop(r, b), centerCrop(b)} {
			if crop.Empty() || !crop.In(b) {
				rt.Fatalf("the crop %v of %v", crop, b)
			}
		}
	})
}

// Luminance is the weighted sum of the colors; transparent pixels lie over black; every model of color is understood.
func TestColorModels(t *testing.T) {
	t.Parallel()
	b := image.Rect(0, 0, 16, 16)
	nrgba, grey, deep := image.NewNRGBA(b), image.NewGray(b), image.NewNRGBA64(b)
	table := image.NewPaletted(b, color.Palette{color.NRGBA{200, 100, 50, 255}})
	for y := range 16 {
		for x := range 16 {
			nrgba.SetNRGBA(x, y, color.NRGBA{200, 100, 50, 128})
			grey.SetGray(x, y, color.Gray{90})
			deep.SetNRGBA64(x, y, color.NRGBA64{200 * 257, 100 * 257, 50 * 257, 65535})
		}
	}
	for name, c := range map[string]struct {
		img  image.Image
		want [3]float64
	}{
		"transparent": {nrgba, [3]float64{100.4, 50.2, 25.1}},
		"grey":        {grey, [3]float64{90, 90, 90}},
		"16 bits":     {deep, [3]float64{200, 100, 50}},
		"paletted":    {table, [3]float64{200, 100, 50}},
	} {
		set, mono := solo(t, Options{Image: 8}, c.img), solo(t, Options{Image: 8, Channels: 1}, c.img)
		colors, luma := canvas(set), canvas(mono)
		fill(t, set, Test, 0, colors)
		fill(t, mono, Test, 0, luma)
		light := 0.0
		for k, weight := range []float64{0.299, 0.587, 0.114} {
			light += weight * c.want[k]
			if got := 255 * (float64(colors[30+k])*imagenet.deviation[k] + imagenet.mean[k]); math.Abs(got-c.want[k]) > 0.6 {
				t.Errorf("%s: channel %d is %.2f, want %.2f", name, k, got, c.want[k])
			}
		}
		if got := 255 * (float64(luma[10])*imagenet.greyDeviation + imagenet.greyMean); math.Abs(got-light) > 1.1 {
			t.Errorf("%s: luminance is %.2f, want %.2f", name, got, light)
		}
	}
}

func paths(l *listing, split Split) (all []string) {
	for _, p := range l.splits[split] {
		all = append(all, fmt.Sprint(p.class, " ", p.path))
	}
	return all
}

// A folder without splits loses a fifth of each class, at least one picture, to the test split; which ones depends on the
// seed alone. Every picture is in one split, in order.
func TestStratified(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	sizes := map[string]int{"a": 2, "b": 5, "c": 7, "d": 8, "e": 50, "train": 13}
	held := map[string]int{"a": 1, "b": 1, "c": 1, "d": 2, "e": 10, "train": 3}
	for class, n := range sizes {
		for i := range n {
			write(t, filepath.Join(root, class, fmt.Sprintf("%d.jpeg", i)), []byte("never read"))
		}
	}
	write(t, filepath.Join(root, "notes.txt"), []byte("no class"))
	write(t, filepath.Join(root, ".cache", "x.png"), []byte("hidden"))
	write(t, filepath.Join(root, "a", ".x.png"), []byte("hidden"))
	write(t, filepath.Join(root, "a", "readme.md"), []byte("no picture"))
	must(t, os.Mkdir(filepath.Join(root, "a", "dir.png"), 0o755))
	different := map[string]bool{}
	for seed := range uint64(5) {
		l, err := listFolder(root, seed)
		must(t, err)
		again, err := listFolder(root, seed)
		must(t, err)
		train, test := paths(l, Train), paths(l, Test)
		if !slices.Equal(train, paths(again, Train)) || !slices.IsSorted(train) || !slices.IsSorted(test) {
			t.Errorf("seed %d: the splits change or are out of order", seed)
		}
		all := append(slices.Clone(train), test...)
		slices.Sort(all)
		if len(slices.Compact(all)) != 85 {
			t.Errorf("seed %d: %d pictures", seed, len(all))
		}
		counts := map[string]int{}
		for _, p := range l.splits[Test] {
			counts[l.classes[p.class]]++
		}
		if fmt.Sprint(counts) != fmt.Sprint(held) {
			t.Errorf("seed %d holds out %v", seed, counts)
		}
		different[fmt.Sprint(test)] = true
	}
	if len(different) != 5 {
		t.Errorf("5 seeds make %d splits", len(different))
	}
}

// Splits that are folders are taken as they are; val serves as test; links to folders and files are followed.
func TestSplitFolders(t *testing.T) {
	t.Parallel()
	for _, test := range []string{"test", "val"} {
		root := t.TempDir()
		fillAlbum(t, filepath.Join(root, "train"), 4, "x", "y")
		fillAlbum(t, filepath.Join(root, test), 3, "x")
		must(t, os.Symlink(filepath.Join(root, test, "x"), filepath.Join(root, test, "y")))
		must(t, os.Symlink(filepath.Join(root, test, "x", "000.png"), filepath.Join(root, "train", "x", "zzz.png")))
		set := open(t, "folder:"+root, Options{Image: 16})
		if set.TrainLen() != 9 || set.TestLen() != 6 || set.Classes() != 2 {
			t.Errorf("%s: %d and %d pictures of %d classes", test, set.TrainLen(), set.TestLen(), set.Classes())
		}
		readAll(t, set, set.TrainLen())
	}
}

// Each way in which a folder can be wrong has its own error.
func TestFolderErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(root string)
		err    error
		text   string
	}{
		"gone":             {func(root string) { must(t, os.RemoveAll(root)) }, ErrUnreadable, "no such file"},
		"a file":           {func(root string) { must(t, os.RemoveAll(root)); write(t, root, []byte("x")) }, ErrUnreadable, "not a directory"},
		"nothing":          {func(root string) { must(t, os.RemoveAll(filepath.Join(root, "train"))) }, ErrNoImages, "holds no folders"},
		"no test":          {func(root string) { must(t, os.Rename(filepath.Join(root, "test"), filepath.Join(root, "exam"))) }, ErrNoImages, "neither test nor val"},
		"empty class":      {func(root string) { must(t, os.Mkdir(filepath.Join(root, "train", "q"), 0o755)) }, ErrEmptyClass, "train/q has no .jpg or .jpeg or .png file"},
		"no test class":    {func(root string) { must(t, os.RemoveAll(filepath.Join(root, "test", "y"))) }, ErrEmptyClass, "test/y"},
		"other test class": {func(root string) { must(t, os.Mkdir(filepath.Join(root, "test", "z"), 0o755)) }, ErrLabel, "test/z is no class"},
		"one picture":      {func(root string) { must(t, os.RemoveAll(root)); fillAlbum(t, root, 1, "k") }, ErrEmptyClass, "k has 1 image"},
	} {
		root := filepath.Join(t.TempDir(), "set")
		fillAlbum(t, filepath.Join(root, "train"), 2, "x", "y")
		fillAlbum(t, filepath.Join(root, "test"), 2, "x", "y")
		if name == "nothing" {
			must(t, os.RemoveAll(filepath.Join(root, "test")))
		}
		c.change(root)
		_, err := Open("folder:"+root, Options{Image: 16, SkipBad: true})
		wrong(t, name, err, c.err, c.text)
	}
}

// wrong checks an error's kind and text.
func wrong(t *testing.T, name string, err, kind error, texts ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%s: %v, want %v", name, err, kind)
		return
	}
	for _, text := range texts {
		if !contains(err, text) {
			t.Errorf("%s: %v does not say %q", name, err, text)
		}
	}
}
