package data

import (
	"bytes"
	"compress/gzip"
	_ "embed" // for digits.csv.gz
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
)

//go:embed digits.csv.gz
var digitsFile []byte

const (
	digitSide    = 8
	digitClasses = 10
	// digitTest is the number of test samples of each class: about a fifth of its 174 to 183.
	digitTest = 36
)

var digitsInfo = Info{
	Name:     "digits",
	Summary:  "1,797 handwritten digits of 8x8 pixels, real, scaled to the image size; 10 classes",
	Source:   "E. Alpaydin, C. Kaynak: Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, 1998, CC BY 4.0",
	MinImage: digitSide,
	Open:     openDigits,
}

// digit is one picture and its class.
type digit struct {
	mask
	class int
}

// digits is the data set of that name. Its training samples are augmented: moved, scaled, turned and slanted a
// little, which is worth about as much as ten times the samples.
type digits struct {
	options Options
	splits  [2][]digit
	tone    tone
}

// digitJitter is mild: a pixel of the 8x8 picture is an eighth of its side.
var digitJitter = jitter{grow: 0.1, turn: 0.12, slant: 0.12, shift: [2]float64{0.08, 0.08}}

func openDigits(_ string, o Options) (Dataset, error) {
	splits, err := loadDigits()
	if err != nil {
		return nil, err
	}
	return &digits{o, splits, normalize(splits[Train])}, nil
}

// loadDigits reads the embedded file once.
var loadDigits = sync.OnceValues(func() ([2][]digit, error) {
	r, err := gzip.NewReader(bytes.NewReader(digitsFile))
	if err != nil {
		return [2][]digit{}, fmt.Errorf("digits.csv.gz: %w", err)
	}
	all, err := readDigits(r)
	if err != nil {
		return [2][]digit{}, fmt.Errorf("digits.csv.gz: %w", err)
	}
	return splitDigits(all), nil
})

// readDigits reads a row per picture: 64 grey values from 0 to 16, then the class.
func readDigits(r io.Reader) ([]digit, error) {
	rows := csv.NewReader(r)
	rows.FieldsPerRecord = digitSide*digitSide + 1
	rows.ReuseRecord = true
	var all []digit
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		d, err := parseDigit(row)
		if err != nil {
			return nil, fmt.Errorf("row %d: %w", len(all)+1, err)
		}
		all = append(all, d)
	}
}

func parseDigit(row []string) (digit, error) {
	d := digit{mask: newMask(digitSide, digitSide)}
	for i, field := range row {
		limit := 16
		if i == len(row)-1 {
			limit = digitClasses - 1
		}
		v, err := strconv.Atoi(field)
		if err != nil || v < 0 || v > limit {
			return d, fmt.Errorf("column %d: %q is not a number from 0 to %d", i+1, field, limit)
		}
		if i == len(row)-1 {
			d.class = v
		} else {
			d.set(i%digitSide, i/digitSide, uint8(v*15))
		}
	}
	return d, nil
}

// splitDigits takes digitTest pictures of each class, evenly spaced in the order of the file, for the test split.
// The split depends on nothing else.
func splitDigits(all []digit) (splits [2][]digit) {
	var count, seen [digitClasses]int
	for _, d := range all {
		count[d.class]++
	}
	for _, d := range all {
		n, k := count[d.class], seen[d.class]
		seen[d.class]++
		split := Train
		if (k+1)*digitTest/n > k*digitTest/n {
			split = Test
		}
		splits[split] = append(splits[split], d)
	}
	return splits
}

// normalize returns the tone that gives the pixels of the pictures zero mean and unit variance.
func normalize(pictures []digit) tone {
	var n, sum, squares int64
	for _, d := range pictures {
		for y := range digitSide {
			for x := range digitSide {
				v := int64(d.pix[(y+1)*d.w+x+1])
				n, sum, squares = n+1, sum+v, squares+v*v
			}
		}
	}
	mean := float64(sum) / float64(n)
	deviation := math.Sqrt(float64(squares)/float64(n) - float64(mean*mean))
	return tone{base: float32(-mean / deviation), gain: float32(255 / deviation)}
}

func (s *digits) Name() string    { return digitsInfo.Name }
func (s *digits) Classes() int    { return digitClasses }
func (s *digits) Shape() [3]int   { return s.options.shape() }
func (s *digits) TrainLen() int64 { return int64(len(s.splits[Train])) }
func (s *digits) TestLen() int64  { return int64(len(s.splits[Test])) }

// Fill implements Dataset.
func (s *digits) Fill(split Split, index int64, dst []float32) (int, error) {
	o := &s.options
	d := &s.splits[split][index%int64(len(s.splits[split]))]
	p := pose{scale: 1}
	if split == Train && !o.NoAugment {
		var r rand.PCG
		stream(&r, o.Seed, split, index)
		p = digitJitter.draw(&r)
	}
	center := float64(digitSide+1) / 2 // of the bordered picture, from the center of its first pixel
	d.draw(dst, o.Image, o.Channels, place(o.Image, digitSide/float64(o.Image), center, center, p), s.tone, nil)
	return d.class, nil
}
