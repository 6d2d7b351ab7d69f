// Command batches writes what train reads of the built-in text, for others to train on. It makes two files of tokens, of the steps'
// samples in their order and of the held-out ones. Each sample is its tokens and then their labels. A label that does not count is
// the size of the vocabulary.
package main

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"plimsoll/models/data"
	"plimsoll/models/tokenizer"
)

func main() {
	length, batch, steps := flag.Int("length", 64, "tokens of a sample"), flag.Int("batch", 16, "samples of a step"), flag.Int64("steps", 400, "")
	seed, out := flag.Uint64("seed", 1, ""), flag.String("out", ".", "folder for train.bin and test.bin")
	flag.Parse()
	if err := write(*length, *batch, *steps, *seed, *out); err != nil {
		fmt.Fprintln(os.Stderr, "batches:", err)
		os.Exit(1)
	}
}

func write(length, batch int, steps int64, seed uint64, out string) error {
	set, err := data.Open("opticks", data.Options{Seed: seed, Length: length})
	if err != nil {
		return err
	}
	for _, split := range []data.Split{data.Train, data.Test} {
		b, err := data.NewBatcher(set, split, batch, seed)
		if err != nil {
			return err
		}
		n := steps
		if split == data.Test {
			n = b.Steps()
		}
		all, err := samples(b, n, length, batch, int32(set.Classes()))
		if err != nil {
			return err
		}
		if err := tokenizer.WriteFile(filepath.Join(out, split.String()+".bin"), tokenizer.NewTokens(all, set.Classes()+1), set.Classes()+1); err != nil {
			return err
		}
	}
	return nil
}

// samples returns the samples of some steps, one after the other; ignored stands for labels that do not count.
func samples(b *data.Batcher[float32], steps int64, length, batch int, ignored int32) (all []int32, err error) {
	tokens, labels := make([]float32, batch*length), make([]int32, batch*length)
	for step := range steps {
		fresh, err := b.Fill(step, tokens, labels)
		if err != nil {
			return nil, err
		}
		for i := range fresh {
			for _, token := range tokens[i*length : (i+1)*length] {
				all = append(all, int32(math.Float32bits(token)))
			}
			for _, label := range labels[i*length : (i+1)*length] {
				if label == data.Ignored {
					label = ignored
				}
				all = append(all, label)
			}
		}
	}
	return all, nil
}
