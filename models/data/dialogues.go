package data

import (
	"fmt"
	"math"
	"slices"

	"plimsoll/models/tokenizer"
)

// dialogues are records of text, each of which is a sample: its tokens, then as many more as a sample needs. The label of a token is the
// one that follows it; it counts where that one is of a learned segment. The last tenth of the records is held out.
type dialogues struct {
	skips
	name    string
	options Options
	by      tokenizer.Tokenizer
	chat    *chat // of records that are messages
	tokens  []int32
	learned []bool  // of each token
	starts  []int64 // of each record among the tokens, and their end
	cut     int     // records before it are trained on
}

func newDialogues(name string, o Options, by tokenizer.Tokenizer) *dialogues {
	d := &dialogues{name: name, options: o, by: by, starts: []int64{0}}
	d.skips.options = &d.options
	return d
}

// add appends a sample, and tokens to learn behind it. Errors: ErrCorrupt for nothing to learn, ErrTooLarge for more tokens than a sample
// has.
func (d *dialogues) add(all []segment, behind ...int32) error {
	from := len(d.tokens)
	encode := d.by.Encode
	for _, s := range all {
		d.tokens = encode(d.tokens, []byte(s.text))
		if by, is := d.by.(interface{ Continue([]int32, []byte) []int32 }); is && len(d.tokens) > from {
			encode = by.Continue // or a word would begin where segments meet
		}
		for len(d.learned) < len(d.tokens) {
			d.learned = append(d.learned, s.learned && len(d.learned) > from)
		}
	}
	for _, token := range behind {
		d.tokens, d.learned = append(d.tokens, token), append(d.learned, len(d.tokens) > from)
	}
	if err := d.check(from); err != nil {
		d.tokens, d.learned = d.tokens[:from], d.learned[:from]
		return err
	}
	d.starts = append(d.starts, int64(len(d.tokens)))
	return nil
}

// fills reports whether a token fills texts that a model reads whole: that of a tokenizer of Hugging Face has to be named.
func (d *dialogues) fills() bool {
	by, is := d.by.(interface{ Pad() int32 })
	return !is || by.Pad() >= 0
}

// addText appends a sample whose tokens are read alone. Errors: as add.
func (d *dialogues) addText(text string) error {
	from := len(d.tokens)
	if by, is := d.by.(interface{ EncodeSample([]int32, []byte) []int32 }); is {
		d.tokens = by.EncodeSample(d.tokens, []byte(text))
	} else {
		d.tokens = d.by.Encode(d.tokens, []byte(text))
	}
	var err error
	switch n := len(d.tokens) - from; {
	case n == 0 || text == "":
		err = fmt.Errorf("%w: its text is empty", ErrCorrupt)
	case n < d.options.Length && !d.fills():
		return fmt.Errorf("%w: --tokenizer %s has no token that fills texts shorter than %d tokens: name one as pad_token in its %s",
			ErrOption, d.options.Tokenizer, d.options.Length, chatConfig)
	case n > d.options.Length:
		err = fmt.Errorf("%w: it has %d tokens, and a sample has %d (--length): give --length %d, or shorter records", ErrTooLarge, n, d.options.Length, n)
	}
	if err != nil {
		d.tokens = d.tokens[:from]
		return err
	}
	for len(d.learned) < len(d.tokens) {
		d.learned = append(d.learned, false)
	}
	d.starts = append(d.starts, int64(len(d.tokens)))
	return nil
}

func (d *dialogues) check(from int) error {
	switch labels := len(d.tokens) - from - 1; {
	case !slices.Contains(d.learned[from:], true):
		return fmt.Errorf("%w: it has no token to learn", ErrCorrupt)
	case labels > d.options.Length:
		return fmt.Errorf("%w: it has %d tokens with its end, and a sample of %d (--length) takes %d: give --length %d, or shorter records",
			ErrTooLarge, labels+1, d.options.Length, d.options.Length+1, labels)
	}
	return nil
}

// ending is the token behind a record: the tokenizer's end of a document, of bytes a line feed. Errors: ErrOption for none.
func (d *dialogues) ending() (int32, error) {
	end := d.by.End()
	switch {
	case end >= 0:
		return end, nil
	case d.by.Name() == tokenizer.BytesName:
		return '\n', nil
	}
	return 0, fmt.Errorf("%w: --tokenizer %s has no token that ends a document: name one as eos_token in its %s", ErrOption, d.options.Tokenizer, chatConfig)
}

// pad is the token that fills samples: the tokenizer's, else the end of a document, else 0. It has no label.
func (d *dialogues) pad() int32 {
	if by, is := d.by.(interface{ Pad() int32 }); is && by.Pad() >= 0 {
		return by.Pad()
	}
	end, _ := d.ending()
	return end
}

// close ends the adding of records. Errors: ErrOption for too few.
func (d *dialogues) close() error {
	n := len(d.starts) - 1
	if n < 2 {
		return fmt.Errorf("%w: data set %s has %d records, and the last of them is held out: it needs 2", ErrOption, d.name, n)
	}
	d.cut = n - max(1, n/heldOut)
	return nil
}

func (d *dialogues) Name() string      { return d.name }
func (d *dialogues) Classes() int      { return d.by.Size() }
func (d *dialogues) Shape() [3]int     { return [3]int{1, d.options.Length, 1} }
func (d *dialogues) TrainLen() int64   { return int64(d.cut) }
func (d *dialogues) TestLen() int64    { return int64(len(d.starts) - 1 - d.cut) }
func (d *dialogues) tokenizer() string { return d.by.Name() }

// record is the one that a sample is.
func (d *dialogues) record(split Split, index int64) int64 {
	if split == Test {
		return int64(d.cut) + index%d.TestLen()
	}
	return index % d.TrainLen()
}

// Fill implements Dataset, with the label of the last token.
func (d *dialogues) Fill(split Split, index int64, dst []float32) (int, error) {
	labels := make([]int32, len(dst))
	err := d.FillTokens(split, index, dst, labels)
	return int(labels[len(labels)-1]), err
}

// FillTokens implements Sequences.
func (d *dialogues) FillTokens(split Split, index int64, dst []float32, labels []int32) error {
	record := d.record(split, index)
	from, to := d.starts[record], d.starts[record+1]
	pad := math.Float32frombits(uint32(d.pad()))
	for i := range dst {
		dst[i], labels[i] = pad, Ignored
		at := from + int64(i)
		if at < to {
			dst[i] = math.Float32frombits(uint32(d.tokens[at]))
		}
		if at+1 < to && d.learned[at+1] {
			labels[i] = d.tokens[at+1]
		}
	}
	return nil
}

// classified are dialogues that are texts with a class each.
type classified struct {
	*dialogues
	labels  []int32 // of the records
	classes int
}

// Classified implements the interface of that name.
func (c *classified) Classified() {}

// Classes counts them: one more than the largest label.
func (c *classified) Classes() int { return c.classes }

// Fill implements Dataset.
func (c *classified) Fill(split Split, index int64, dst []float32) (int, error) {
	label := []int32{0}
	err := c.FillTokens(split, index, dst, label)
	return int(label[0]), err
}

// FillTokens implements Sequences, with one label.
func (c *classified) FillTokens(split Split, index int64, dst []float32, labels []int32) error {
	labels[0] = c.labels[c.record(split, index)]
	return c.dialogues.FillTokens(split, index, dst, make([]int32, len(dst)))
}
