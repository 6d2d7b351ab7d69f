package main

import (
	"fmt"
	"io"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"plimsoll/internal/units"
	"plimsoll/models/data"
	"plimsoll/models/tokenizer"
)

// tokenizeFigures is the JSON of tokenize.
type tokenizeFigures struct {
	Tokenizer  string `json:"tokenizer"`
	Vocabulary int    `json:"vocabulary"`
	Bytes      int64  `json:"bytes"` // of text
	Tokens     int64  `json:"tokens"`
	Out        string `json:"out"`
}

// tokenizeCommand is plimsoll tokenize.
type tokenizeCommand struct {
	*app
	data, tokenizer, out string
}

func newTokenizeCommand(a *app) *cobra.Command {
	c := &tokenizeCommand{app: a}
	cmd := command("tokenize", "Make a file of tokens of a text", `Make tokens of a UTF-8 file, or of the .txt files of a folder, and write them to a file that train reads with --data tokens:PATH.
Training reads it where it is, so that it need not fit in memory. The format is that of llm.c's .bin files: a header of 256
numbers of 4 bytes, then 2 bytes a token, or 4 for vocabularies beyond 65,536.`, nil)
	cmd.Example = `  plimsoll tokenize --data text:book.txt --tokenizer gpt2 --output book.bin
  plimsoll train -m gpt2 --data tokens:book.bin --length 256 --batch 4 --memory 60%`
	cmd.Flags().StringVar(&c.data, "data", "", "text: opticks or text:PATH")
	cmd.Flags().StringVar(&c.tokenizer, "tokenizer", "", "bytes, or a folder with tokenizer.json, or with GPT-2's encoder.json and vocab.bpe (default: bytes)")
	cmd.Flags().StringVarP(&c.out, "output", "o", "", "file to write")
	cmd.RunE = func(*cobra.Command, []string) error { return c.run() }
	return cmd
}

func (c *tokenizeCommand) run() error {
	if err := firstOf(required("--data", c.data, "--data text:book.txt"), required("--output", c.out, "--output tokens.bin")); err != nil {
		return err
	}
	words, err := tokenizer.Open(c.tokenizer)
	if err != nil {
		return usage(fmt.Errorf("--tokenizer: %w", err))
	}
	text, err := data.Text(c.data)
	if err != nil {
		return err
	}
	tokens := tokenizer.NewTokens(words.Encode(nil, text), words.Size())
	if err := tokenizer.WriteFile(c.out, tokens, words.Size()); err != nil {
		return err
	}
	figures := tokenizeFigures{words.Name(), words.Size(), int64(len(text)), tokens.Len(), c.out}
	return c.print(figures, func(w io.Writer) {
		fmt.Fprintf(w, "%s: %s tokens of %s, of %s of text, %.2f bytes a token\n", c.out, humanize.Comma(tokens.Len()),
			units.Count(words.Size(), "kind"), units.Bytes(figures.Bytes), float64(figures.Bytes)/float64(max(tokens.Len(), 1)))
	})
}
