// Package tokenizer makes numbers of text: its bytes, or byte pairs as GPT-2 and Hugging Face's tokenizers have them.
package tokenizer

import (
	"fmt"
	"os"
	"path/filepath"
)

// Tokenizer makes tokens of text, and text of tokens. It may be used by several goroutines at once.
type Tokenizer interface {
	// Name tells vocabularies apart.
	Name() string
	// Size is the size of the vocabulary: tokens are below it.
	Size() int
	// Encode appends the tokens of text, which need not be UTF-8: decoded they are the same bytes.
	Encode(dst []int32, text []byte) []int32
	// Decode appends the bytes of tokens; those of one token need not be whole characters. Errors: ErrToken.
	Decode(dst []byte, tokens []int32) ([]byte, error)
	// End is the token that ends a document, or -1.
	End() int32
}

// BytesName is the name of Bytes, which Open knows.
const BytesName = "bytes"

// Open returns the tokenizer of a name: "bytes" or "", or a folder with a tokenizer.json (see OpenJSON) or with the two files of a byte pair
// encoding (see OpenGPT2).
func Open(name string) (Tokenizer, error) {
	if name == "" || name == BytesName {
		return Bytes{}, nil
	}
	if _, err := os.Lstat(filepath.Join(name, jsonFile)); err == nil {
		return OpenJSON(name)
	}
	return OpenGPT2(name)
}

// Bytes takes bytes for tokens.
type Bytes struct{}

// Name implements Tokenizer.
func (Bytes) Name() string { return BytesName }

// Size implements Tokenizer.
func (Bytes) Size() int { return 256 }

// End implements Tokenizer: every byte may be of a text.
func (Bytes) End() int32 { return -1 }

// Encode implements Tokenizer.
func (Bytes) Encode(dst []int32, text []byte) []int32 {
	for _, b := range text {
		dst = append(dst, int32(b))
	}
	return dst
}

// Decode implements Tokenizer.
func (Bytes) Decode(dst []byte, tokens []int32) ([]byte, error) {
	for _, t := range tokens {
		if t < 0 || t > 255 {
			return dst, fmt.Errorf("%w: %d, of bytes", ErrToken, t)
		}
		dst = append(dst, byte(t))
	}
	return dst, nil
}
