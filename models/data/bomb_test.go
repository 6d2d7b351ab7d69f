package data

import (
	"bytes"
	"compress/gzip"
	"errors"
	"image"
	"image/color"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
)

// statedPNG is a header of a picture with so many bits in a sample, interlaced or not.
func statedPNG(w, h uint32, bits, colors, interlaced byte) []byte {
	chunk := hugePNG(w, h)[12:29]
	chunk[12], chunk[13], chunk[16] = bits, colors, interlaced
	return headedPNG(chunk)
}

// statedJPEG is the good file whose frame states a size, and is progressive or not.
func statedJPEG(t *testing.T, side uint16, progressive bool) []byte {
	t.Helper()
	b := jpegBytes(t, scene(3, 16, 16))
	at := bytes.Index(b, []byte{0xff, 0xc0})
	copy(b[at+5:], []byte{byte(side >> 8), byte(side), byte(side >> 8), byte(side)})
	if progressive {
		b[at+1] = 0xc2
	}
	return b
}

// The header of a picture determines the bytes that decoding it takes. A picture that takes too many is refused by name before anything is
// decoded.
func TestPicturesStateWhatTheyTake(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file  []byte
		takes int64 // bytes; 0: too much
	}{
		"8 bits":                  {statedPNG(8192, 8192, 8, 2, 0), 4 << 26},
		"grey":                    {statedPNG(1000, 10, 8, 0, 0), 4 * 10_000},
		"16 bits":                 {statedPNG(8192, 8192, 16, 6, 0), 8 << 26},
		"16 bits, interlaced":     {statedPNG(8192, 8192, 16, 6, 1), 0},
		"8 bits, interlaced":      {statedPNG(8192, 8192, 8, 2, 1), 8 << 26},
		"more pixels":             {statedPNG(8192, 8193, 8, 2, 0), 0},
		"baseline":                {statedJPEG(t, 8192, false), 7 << 26},
		"progressive":             {statedJPEG(t, 4000, true), 19 * 16_000_000},
		"progressive, and larger": {statedJPEG(t, 8192, true), 0},
	} {
		s, err := look(bytes.NewReader(c.file))
		if c.takes == 0 && (!errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "at most")) || c.takes > 0 && (err != nil || s.bytes != c.takes) {
			t.Errorf("%s: %d bytes, want %d: %v", name, s.bytes, c.takes, err)
		}
	}
	palette := image.NewPaletted(image.Rect(0, 0, 5, 5), color.Palette{color.Black, color.White})
	if s, err := look(bytes.NewReader(pngBytes(t, palette))); err != nil || s.bytes != 25 {
		t.Errorf("a palette: %d bytes, %v", s.bytes, err)
	}
}

// All pictures that are decoded at one time share one budget, and give back what they took however it ends.
func TestPicturesShareTheirMemory(t *testing.T) {
	// Serial: it takes the memory of all pictures.
	const all = maxPictureBytes + maxPictureDecoded
	root, _ := spoilt(t)
	set, err := Open("folder:"+root, Options{Image: 8, Channels: 3})
	must(t, err)
	dst := make([]float32, 3*8*8)
	for split, n := range []int64{set.TrainLen(), set.TestLen()} {
		for i := range n {
			_, _ = set.Fill(Split(split), i, dst) // some are bad
		}
	}
	if !decoding.TryAcquire(all) {
		t.Fatal("pictures have kept what they took")
	}
	good, err := Open("folder:"+album(t, 3, "a", "b"), Options{Image: 8, Channels: 3})
	must(t, err)
	var free atomic.Bool
	early := make(chan bool)
	go func() {
		_, err := good.Fill(Train, 0, dst)
		early <- err != nil || !free.Load()
	}()
	runtime.Gosched()
	free.Store(true)
	decoding.Release(all)
	if <-early {
		t.Error("a picture was decoded without room")
	}
	big := &scratch{file: make([]byte, keptScratch+1), native: image.NewRGBA(image.Rect(0, 0, 1, keptScratch/4+1))}
	if big.shrink(0); big.file != nil || big.native != nil {
		t.Error("what a large picture took is kept")
	}
}

// A gzip file that unpacks to a thousand times its size is refused by what it states; memory is that of what a file holds, once.
func TestIDXBombs(t *testing.T) {
	// Serial: it counts allocations.
	const n = 700_000 // of 784 bytes
	files := idxFiles()
	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	_, err := w.Write(idxBytes(nil, n, 28, 28))
	must(t, err)
	zeros := make([]byte, 1<<20)
	for left := n * 784; left > 0; left -= len(zeros) {
		_, err = w.Write(zeros[:min(left, len(zeros))])
		must(t, err)
	}
	must(t, w.Close())
	for name := range files {
		if strings.Contains(name, "train-images") {
			files[name] = bomb.Bytes()
		}
	}
	took := allocated(func() { _, err = Open("idx:"+idxFolder(t, files), Options{Image: 28, Channels: 1}) })
	if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "train-images") || took > 16<<20 {
		t.Errorf("%d bytes were unpacked to %d: %v", bomb.Len(), took, err)
	}
	const honest = 32 << 20
	payload := noise(1, honest)
	plain := idxBytes(payload, honest/1024, 32, 32)
	for name, file := range map[string][]byte{"plain": plain, "packed": zipped(t, plain)} {
		path := write(t, filepath.Join(t.TempDir(), name), file)
		var x *idx
		took := allocated(func() { x, err = openIDXFile(path, 3) })
		if err != nil || !slices.Equal(x.payload, payload) || took > honest+honest/4 {
			t.Errorf("%s: %d bytes were allocated for %d, %v", name, took, honest, err)
		}
	}
	stated := write(t, filepath.Join(t.TempDir(), "stated"), idxBytes(payload[:100], 1<<20, 32, 32))
	took = allocated(func() { _, err = openIDXFile(stated, 3) })
	if err != nil || took > 1<<20 {
		t.Errorf("%d bytes were allocated for 100, %v", took, err)
	}
}

// allocated returns how many bytes something allocates.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Devices and pipes under the names of data are refused, and nobody waits for them.
func TestDataIsInFiles(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Skip(err)
	}
	for _, bad := range []string{fifo, "/dev/zero", "/dev/stdin"} {
		if info, err := os.Stat(bad); err != nil || info.Mode().IsRegular() {
			continue
		}
		root := album(t, 3, "a", "b")
		names, err := filepath.Glob(filepath.Join(root, "*", "*"))
		must(t, err)
		must(t, errors.Join(os.Remove(names[0]), os.Symlink(bad, names[0])))
		set, err := Open("folder:"+root, Options{Image: 8, Channels: 3})
		must(t, err)
		failed := 0
		for i := range set.TrainLen() + set.TestLen() {
			split, at := Train, i
			if at >= set.TrainLen() {
				split, at = Test, at-set.TrainLen()
			}
			if _, err := set.Fill(split, at, make([]float32, 3*8*8)); err != nil {
				if failed++; !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), "not a regular file") {
					t.Errorf("%s: %v", bad, err)
				}
			}
		}
		if failed != 1 {
			t.Errorf("%s: %d samples failed", bad, failed)
		}
	}
}

// An error of the system is none of the file's, whatever parsed it.
func TestReadErrorsAreNotTheFiles(t *testing.T) {
	t.Parallel()
	good := pngBytes(t, scene(1, 9, 9))
	r := io.MultiReader(bytes.NewReader(good[:20]), iotest.ErrReader(syscall.EIO))
	err := reading(r, "a.png", func(r io.Reader) error { _, err := look(r); return err })
	if !errors.Is(err, ErrUnreadable) || !errors.Is(err, syscall.EIO) || errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "a.png") {
		t.Error(err)
	}
}
