package tokenizer

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"plimsoll/internal/fields"
)

// Names of the files of a vocabulary, as OpenAI has published them, and as Hugging Face has.
var (
	tokenFiles = []string{"encoder.json", "vocab.json"}
	mergeFiles = []string{"vocab.bpe", "merges.txt"}
)

const (
	// mostFile bounds a file of a vocabulary, in bytes; GPT-2's have 1 MB and 0.5 MB.
	mostFile = 64 << 20
	// mostTokens bounds a vocabulary.
	mostTokens = 1 << 24
	endOfText  = "<|endoftext|>"
)

// OpenGPT2 reads a folder with encoder.json and vocab.bpe as OpenAI has published them for GPT-2, or with vocab.json and merges.txt, as
// Hugging Face names them. Errors: ErrVocabulary.
func OpenGPT2(folder string) (*GPT2, error) {
	tokens, path, err := readEither(folder, tokenFiles)
	if err != nil {
		return nil, err
	}
	g := &GPT2{folder: folder, end: -1, merges: map[pair]merging{}, text: map[int32][]byte{}, words: map[string][]int32{}}
	g.word, g.symbols, g.merge = word, g.bytesOf, (*merger).round
	numbers, err := g.readTokens(tokens)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrVocabulary, path, err)
	}
	merges, path, err := readEither(folder, mergeFiles)
	if err == nil {
		if err = g.readMerges(merges, numbers); err != nil {
			err = fmt.Errorf("%w: %s: %w", ErrVocabulary, path, err)
		}
	}
	sum := sha256.Sum256(append(tokens, merges...))
	g.name = "bpe-" + hex.EncodeToString(sum[:6])
	return g, err
}

// readEither reads the first of the files that a folder has.
func readEither(folder string, files []string) (data []byte, path string, err error) {
	for _, name := range files {
		path = filepath.Join(folder, name)
		f, err := os.Open(path)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, path, fmt.Errorf("%w: %w", ErrVocabulary, err)
		}
		defer func() { _ = f.Close() }()
		if data, err = io.ReadAll(io.LimitReader(f, mostFile+1)); err != nil {
			return nil, path, fmt.Errorf("%w: %w", ErrVocabulary, err)
		}
		if len(data) > mostFile {
			return nil, path, fmt.Errorf("%w: %s has more than %d MiB", ErrVocabulary, path, mostFile>>20)
		}
		return data, path, nil
	}
	return nil, path, fmt.Errorf("%w: %s: give the folder of the two files of GPT-2's vocabulary", ErrVocabulary, lack(folder, files))
}

// lack says why a folder has none of some files.
func lack(folder string, files []string) string {
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return fmt.Sprintf("there is no folder %s", folder)
	}
	text := fmt.Sprintf("folder %s has no %s", folder, strings.Join(files, " and no "))
	for _, other := range []string{"tokenizer.model"} {
		if _, err := os.Stat(filepath.Join(folder, other)); err == nil {
			return text + ", and its " + other + " is not read yet"
		}
	}
	return text
}

// readTokens reads the numbers of tokens, whose bytes are written as letters (see letters).
func (g *GPT2) readTokens(data []byte) (map[string]int32, error) {
	var numbers map[string]int32
	if err := json.Unmarshal(data, &numbers); err != nil {
		return nil, err
	}
	for written, n := range numbers {
		if written == endOfText {
			g.end = n
		}
		text, err := bytesWritten(written)
		if err != nil && written != endOfText {
			return nil, err
		}
		if err := g.add(n, written, text); err != nil {
			return nil, err
		}
	}
	return numbers, g.findBytes(numbers)
}

// add adds a token with the bytes that it stands for; a token without letters stands for itself.
func (g *GPT2) add(n int32, written string, text []byte) error {
	if n < 0 || n >= mostTokens || g.text[n] != nil {
		return fmt.Errorf("token %q has number %d, which another one has or which is out of range", written, n)
	}
	if g.text[n] = text; text == nil {
		g.text[n] = []byte(written)
	}
	g.size = max(g.size, int(n)+1)
	return nil
}

// bytesWritten returns the bytes that a token's letters stand for.
func bytesWritten(written string) ([]byte, error) {
	text := make([]byte, 0, len(written))
	for _, r := range written {
		b, ok := letterBytes[r]
		if !ok {
			return nil, fmt.Errorf("token %q has %q, which is no byte's letter", written, r)
		}
		text = append(text, b)
	}
	return text, nil
}

// bytesOf appends the tokens of bytes.
func (g *GPT2) bytesOf(dst []int32, word []byte) []int32 {
	for _, b := range word {
		dst = append(dst, g.bytes[b])
	}
	return dst
}

// findBytes finds the token of each byte.
func (g *GPT2) findBytes(numbers map[string]int32) error {
	for b, r := range letters() {
		n, ok := numbers[string(r)]
		if !ok {
			return fmt.Errorf("byte %d, written %q, is no token", b, r)
		}
		g.bytes[b] = n
	}
	return nil
}

// readNumbers reads the numbers of tokens as they are written.
func readNumbers(o *fields.Object) (map[string]int32, error) {
	numbers := map[string]int32{}
	for written, raw := range o.Rest() {
		n, err := strconv.ParseInt(string(raw), 10, 32)
		if err != nil || n < 0 || n >= mostTokens {
			return nil, fmt.Errorf("token %q has number %s, want one from 0 to %d", written, brief(raw), mostTokens-1)
		}
		numbers[written] = int32(n)
	}
	return numbers, o.Err()
}

// readMerges reads the pairs that are merged, a line each, the first ones first.
func (g *GPT2) readMerges(data []byte, numbers map[string]int32) error {
	lines := bufio.NewScanner(bytes.NewReader(data))
	for line := 1; lines.Scan(); line++ {
		text := lines.Text()
		if text == "" || line == 1 && strings.HasPrefix(text, "#version") {
			continue
		}
		left, right, ok := strings.Cut(text, " ")
		if !ok || strings.Contains(right, " ") {
			return fmt.Errorf("line %d is %q, want two parts with a space between them", line, text)
		}
		a, okA := numbers[left]
		b, okB := numbers[right]
		both, okBoth := numbers[left+right]
		if !okA || !okB || !okBoth {
			return fmt.Errorf("line %d merges %q and %q, and they or what they become are no tokens", line, left, right)
		}
		if _, twice := g.merges[pair{a, b}]; !twice {
			g.merges[pair{a, b}] = merging{int32(line), both}
		}
	}
	return lines.Err()
}

// letters returns how bytes are written in the files: those of Latin-1 that are seen as themselves, the others as what follows Latin-1.
func letters() (all [256]rune) {
	next := rune(256)
	for b := range all {
		if r := rune(b); r >= '!' && r <= '~' || r >= '¡' && r <= '¬' || r >= '®' && r <= 'ÿ' {
			all[b] = r
		} else {
			all[b] = next
			next++
		}
	}
	return all
}

// letterBytes is letters backwards.
var letterBytes = func() map[rune]byte {
	from := map[rune]byte{}
	for b, r := range letters() {
		from[r] = byte(b)
	}
	return from
}()

// Name implements Tokenizer, with a hash of the files, wherever they are.
func (g *GPT2) Name() string { return g.name }

// Size implements Tokenizer.
func (g *GPT2) Size() int { return g.size }

// End implements Tokenizer.
func (g *GPT2) End() int32 { return g.end }

// Decode implements Tokenizer.
func (g *GPT2) Decode(dst []byte, tokens []int32) ([]byte, error) {
	for _, t := range tokens {
		text, ok := g.text[t]
		if !ok {
			return dst, fmt.Errorf("%w: %d, of the vocabulary in %s", ErrToken, t, g.folder)
		}
		dst = append(dst, text...)
	}
	return dst, nil
}

// Whole returns how many bytes at the beginning of text are whole characters, or cannot become one: what may be shown before more comes.
func Whole(text []byte) int {
	for back := 1; back < utf8.UTFMax && back <= len(text); back++ {
		if rest := text[len(text)-back:]; utf8.RuneStart(rest[0]) {
			if !utf8.FullRune(rest) {
				return len(text) - back
			}
			break
		}
	}
	return len(text)
}
