package data

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"plimsoll/models/tokenizer"
)

var tokensInfo = Info{
	Name:    "tokens:PATH",
	Summary: "a file of tokens, which plimsoll tokenize writes, or llm.c's scripts; it need not fit in memory",
	Text:    true,
	Source:  "files of the user",
	Open: func(path string, o Options) (Dataset, error) {
		if err := o.withoutTokenizer("tokens:" + path); err != nil {
			return nil, err
		}
		all, size, err := tokenizer.OpenFile(path)
		if err != nil {
			return nil, fmt.Errorf("data set tokens: %w", explain(err))
		}
		return newText("tokens:"+path, o, "", all, size)
	},
}

var nanoGPTInfo = Info{
	Name:    "nanogpt:PATH",
	Summary: "a folder with nanoGPT's train.bin and val.bin, or one such file; the vocabulary is --classes, or GPT-2's 50257",
	Text:    true,
	Source:  "files of the user; karpathy/nanoGPT, data/openwebtext/prepare.py",
	Open: func(path string, o Options) (Dataset, error) {
		name := "nanogpt:" + path
		if err := o.withoutTokenizer(name); err != nil {
			return nil, err
		}
		vocabulary := o.Classes
		if vocabulary == 0 {
			vocabulary = nanoGPTSize
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("data set nanogpt: %w: %w", ErrUnreadable, err)
		}
		if !info.IsDir() {
			all, err := tokenizer.OpenRaw(path)
			if err != nil {
				return nil, fmt.Errorf("data set nanogpt: %w", explain(err))
			}
			return newText(name, o, "", all, vocabulary)
		}
		var splits [2]tokenizer.Tokens
		for i, file := range []string{"train.bin", "val.bin"} {
			if splits[i], err = tokenizer.OpenRaw(filepath.Join(path, file)); err != nil {
				return nil, fmt.Errorf("data set nanogpt: %w", explain(err))
			}
		}
		return newSplits(name, o, "", vocabulary, splits[0], splits[1])
	},
}

// nanoGPTSize is the vocabulary of GPT-2's tokens, which nanoGPT's files have unless they were made of characters.
const nanoGPTSize = 50257

// withoutTokenizer refuses a tokenizer for a file that has tokens.
func (o Options) withoutTokenizer(name string) error {
	if o.Tokenizer == "" {
		return nil
	}
	return fmt.Errorf("%w: data set %s has tokens, and --tokenizer %s makes them of text: leave it out", ErrOption, name, o.Tokenizer)
}

// explain gives errors of token files this package's kind.
func explain(err error) error {
	if errors.Is(err, tokenizer.ErrFile) {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return fmt.Errorf("%w: %w", ErrUnreadable, err)
}
