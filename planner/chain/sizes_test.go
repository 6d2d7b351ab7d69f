package chain

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
)

// sized is the tiny chain, of batch 8, at batches 32 and 16, too.
func sized(t *testing.T) *Chain {
	t.Helper()
	at := func(batch int) *Chain {
		c, err := Decode(strings.NewReader(tiny(t)))
		if err != nil {
			t.Fatal(err)
		}
		c.Batch = batch
		c.Layers[0].ForwardS *= float64(batch)
		return c
	}
	c := at(8)
	c.Others = []*Chain{at(32), at(16)}
	return c
}

// A chain of several batch sizes is read as it is written, and says each of them.
func TestBatchSizesAreKept(t *testing.T) {
	t.Parallel()
	c := sized(t)
	var text, again bytes.Buffer
	if err := c.Encode(&text); err != nil {
		t.Fatal(err)
	}
	read, err := Decode(bytes.NewReader(text.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if err := read.Encode(&again); err != nil || again.String() != text.String() {
		t.Errorf("%v: written\n%s\nread and written\n%s", err, &text, &again)
	}
	var sizes []int
	for _, x := range read.Sizes() {
		sizes = append(sizes, x.Batch)
		if at := read.At(x.Batch); at == nil || at.Others != nil || at.Layers[0].ForwardS != c.Layers[0].ForwardS/8*float64(x.Batch) {
			t.Errorf("at batch %d: %+v", x.Batch, at)
		}
	}
	if !slices.Equal(sizes, []int{8, 16, 32}) || read.At(64) != nil || read.Others[0].At(64) != read.Others[0] {
		t.Errorf("sizes %v; at batch 64 %v", sizes, read.At(64))
	}
	grouped, err := Group(read, []int{2})
	if err != nil || grouped.Others != nil {
		t.Errorf("grouped: %v, other batch sizes %v", err, grouped.Others)
	}
}

// Batch sizes that are none, or of another model, are refused by field and value, also in files.
func TestBadBatchSizesAreRefused(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(c *Chain){
		`field "batch" is 0, which of a chain with other_batches is missing`:                          func(c *Chain) { c.Batch = 0 },
		`other_batches[1]: field "batch" is 8, which is no other batch size`:                          func(c *Chain) { c.Others[1].Batch = 8 },
		`other_batches[0]: field "batch" is 0, which is no other batch size`:                          func(c *Chain) { c.Others[0].Batch = 0 },
		`other_batches[0]: field "name" is "x", which is not the chain's, "tiny"`:                     func(c *Chain) { c.Others[0].Name = "x" },
		`other_batches[0]: field "layers" is 1, which is not how many the chain has, 2`:               func(c *Chain) { c.Others[0].Layers = c.Others[0].Layers[1:] },
		`layer 1 (conv): other_batches[0]: field "weight_bytes" is 7, which is not the chain's, 1000`: func(c *Chain) { c.Others[0].Layers[0].WeightBytes = 7 },
		`other_batches[0]: layer 2 (loss): field "forward_s" is -1, which is negative or not finite`:  func(c *Chain) { c.Others[0].Layers[1].ForwardS = -1 },
		`other_batches[0]: field "other_batches" is`:                                                  func(c *Chain) { c.Others[0].Others = c.Others[1:] },
	} {
		c := sized(t)
		change(c)
		if err := c.Validate(); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(bytes.NewReader(text)); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), want) {
			t.Errorf("of a file: %v, want %s", err, want)
		}
	}
	for text, want := range map[string]string{`5`: `field "other_batches" is 5, which is not an array`, `[3]`: `other_batches[0]: not a JSON object`} {
		doc := strings.Replace(tiny(t), `"batch":8`, `"batch":8,"other_batches":`+text, 1)
		if _, err := Decode(strings.NewReader(doc)); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
