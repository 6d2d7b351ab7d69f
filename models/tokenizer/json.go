package tokenizer

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"plimsoll/internal/fields"
	"plimsoll/internal/folder"
)

// jsonFile is the file of Hugging Face's tokenizers.
const jsonFile = "tokenizer.json"

// OpenJSON reads the tokenizer.json of a folder. Its model is a byte pair encoding on bytes (GPT-2, Llama 3, Qwen 2) or on characters (Llama 2,
// Mistral), WordPiece (BERT) or Unigram (T5, XLM-RoBERTa, ALBERT). Tokens are those of encode(text, add_special_tokens=False) of Hugging Face's
// tokenizers. Errors: ErrVocabulary with the field that is not supported, folder.ErrForeign, those of the operating system.
func OpenJSON(path string) (*Added, error) {
	at := folder.At(path)
	text, err := at.ReadFile(jsonFile)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrVocabulary, err)
	}
	a, err := readJSON(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrVocabulary, at.Path(jsonFile), err)
	}
	a.pairs.folder = path
	return a, a.readSpecial(at)
}

// configFile is the file beside it that names the end of a document.
const configFile = "tokenizer_config.json"

// readSpecial takes the end of a document from eos_token, what fills samples from pad_token, and what masks tokens from mask_token, if there is such a file with the fields.
func (a *Added) readSpecial(at *folder.Dir) error {
	text, err := at.ReadFile(configFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var config struct {
		EOS  json.RawMessage `json:"eos_token"`
		Pad  json.RawMessage `json:"pad_token"`
		Mask json.RawMessage `json:"mask_token"`
	}
	if err == nil {
		err = json.Unmarshal(text, &config)
	}
	for _, special := range []struct {
		name string
		raw  json.RawMessage
		to   *int32
	}{{"eos_token", config.EOS, &a.pairs.end}, {"pad_token", config.Pad, &a.pad}, {"mask_token", config.Mask, &a.mask}} {
		if err == nil {
			err = a.find(special.name, special.raw, special.to)
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrVocabulary, at.Path(configFile), err)
	}
	return nil
}

// find returns the number of a token that a field names, as a string or as an object with content.
func (a *Added) find(name string, raw json.RawMessage, to *int32) error {
	var text string
	var object struct{ Content string }
	if json.Unmarshal(raw, &text) != nil && json.Unmarshal(raw, &object) == nil {
		text = object.Content
	}
	if text == "" {
		return nil
	}
	found := int32(-1)
	for n, token := range a.pairs.text {
		if string(token) == text && n > found { // added tokens have the largest numbers
			found = n
		}
	}
	if found < 0 {
		return fmt.Errorf("%s is %q, which %s does not have", name, text, jsonFile)
	}
	*to = found
	return nil
}

// readJSON reads the text of a tokenizer.json.
func readJSON(text []byte) (*Added, error) {
	o, err := fields.Parse(text)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"truncation", "padding"} { // samples are cut and filled by data sets
		o.Raw(name)
	}
	for _, name := range []string{"version", "decoder"} { // how tokens become text follows from the model
		o.Raw(name)
	}
	o.Require("model")
	model := o.Object("model")
	sum := sha256.Sum256(text)
	a := &Added{pad: -1, mask: -1, pairs: &GPT2{
		name: hex.EncodeToString(sum[:6]), end: -1,
		merges: map[pair]merging{}, text: map[int32][]byte{}, words: map[string][]int32{}, merge: (*merger).step,
	}}
	if a.frame, err = readFrame(o); err != nil {
		return nil, err
	}
	if o.Err() != nil {
		return nil, o.Err()
	}
	kind := model.String("type", "BPE")
	read := map[string]func(o, model *fields.Object) (map[string]int32, error){
		"BPE": a.readPairsModel, "Unigram": inPieces(a.readUnigram), "WordPiece": inPieces(a.readWordPiece),
	}[kind]
	if read == nil {
		return nil, &fields.Error{Field: "type", Value: strconv.Quote(kind), Reason: "is not supported: want BPE, Unigram or WordPiece"}
	}
	a.pairs.name = strings.ToLower(kind) + "-" + a.pairs.name
	numbers, err := read(o, model)
	if err != nil {
		return nil, err
	}
	if err := a.readAdded(o.Array("added_tokens"), numbers); err != nil {
		return nil, err
	}
	if err := a.checkFrame(); err != nil {
		return nil, err
	}
	return a, unknown(o)
}

// readPairsModel reads a byte pair encoding.
func (a *Added) readPairsModel(o, model *fields.Object) (numbers map[string]int32, err error) {
	cut, err := readCut(o)
	if err := cmp.Or(o.Err(), err); err != nil {
		return nil, err
	}
	a.changes = cut.spaced() || cut.compose
	a.plain = func(dst []int32, text []byte, at place) []int32 {
		cut := cut
		if at.joined {
			cut.prefix = noPrefix
		}
		return a.pairs.Encode(dst, cut.normalize(text, at.first))
	}
	if numbers, err = a.readModel(model, cut); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	return numbers, nil
}

// inPieces returns the reader of a model that makes words in steps.
func inPieces(read func(o *fields.Object, p *pieces) (map[string]int32, error)) func(o, model *fields.Object) (map[string]int32, error) {
	return func(o, model *fields.Object) (map[string]int32, error) {
		p, err := readPieces(o)
		if err := cmp.Or(o.Err(), err); err != nil {
			return nil, err
		}
		numbers, err := read(model, p)
		if err != nil {
			return nil, fmt.Errorf("model: %w", err)
		}
		return numbers, nil
	}
}

// readModel reads the vocabulary and the merges, and returns the numbers of tokens as they are written.
func (a *Added) readModel(o *fields.Object, cut cut) (numbers map[string]int32, err error) {
	for _, name := range []string{"continuing_subword_prefix", "end_of_word_suffix"} {
		if text := o.Text(name, ""); text != "" {
			o.Refuse(name, strconv.Quote(text), "is not supported: want none")
		}
	}
	if p := o.Float("dropout", 0); p != 0 {
		o.Refuse("dropout", fmt.Sprint(p), "is not supported: a text has one form")
	}
	o.Raw("unk_token") // every byte is a token
	o.Raw("fuse_unk")
	fallback, ignore := o.Bool("byte_fallback", false), o.Bool("ignore_merges", false)
	o.Require("vocab", "merges")
	vocabulary, merges := o.Object("vocab"), o.Array("merges")
	if err := unknown(o); err != nil {
		return nil, err
	}
	if numbers, err = readNumbers(vocabulary); err != nil {
		return nil, err
	}
	if err := a.pairs.readPairs(merges, numbers); err != nil {
		return nil, err
	}
	if cut.spaced() {
		return numbers, a.pairs.onCharacters(numbers, fallback, ignore)
	}
	return numbers, a.pairs.onBytes(numbers, cut, ignore)
}

// readPairs reads the merges: texts with a space between two tokens, or arrays of two.
func (g *GPT2) readPairs(all []json.RawMessage, numbers map[string]int32) error {
	for i, raw := range all {
		var two []string
		var one string
		if json.Unmarshal(raw, &one) == nil {
			two = strings.Split(one, " ")
		} else if json.Unmarshal(raw, &two) != nil {
			two = nil
		}
		if len(two) != 2 {
			return fmt.Errorf("merges[%d] is %s, want two tokens", i, brief(raw))
		}
		left, okLeft := numbers[two[0]]
		right, okRight := numbers[two[1]]
		both, okBoth := numbers[two[0]+two[1]]
		if !okLeft || !okRight || !okBoth {
			return fmt.Errorf("merges[%d] is %s, and they or what they become are no tokens", i, brief(raw))
		}
		if _, twice := g.merges[pair{left, right}]; twice {
			return fmt.Errorf("merges[%d] is %s, which is there twice", i, brief(raw))
		}
		g.merges[pair{left, right}] = merging{int32(i), both}
	}
	return nil
}

// onBytes makes the model one of words whose bytes are written as letters.
func (g *GPT2) onBytes(numbers map[string]int32, cut cut, ignore bool) error {
	whole := map[string]int32{}
	for written, n := range numbers {
		text, err := bytesWritten(written)
		if err == nil {
			whole[string(text)] = n
		}
		if err := g.add(n, written, text); err != nil {
			return err
		}
		if written == endOfText {
			g.end = n
		}
	}
	if g.word, g.symbols = cut.word, g.bytesOf; ignore {
		g.whole = func(word []byte) (int32, bool) { n, is := whole[string(word)]; return n, is }
	}
	return g.findBytes(numbers)
}
