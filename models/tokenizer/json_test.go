package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// forms are the tokenizers in testdata, which bench/research/peers/src/torch_tokenizers.py has trained with Hugging Face's tokenizers.
var forms = []string{"albert", "bert", "bert-cased", "gpt2", "llama2", "llama3", "mistral", "qwen2", "t5", "xlm-roberta"}

// lossy are the forms whose tokens do not tell the text.
var lossy = []string{"albert", "bert", "bert-cased", "qwen2", "t5", "xlm-roberta"}

// Texts of many kinds have the tokens that Hugging Face's tokenizers make of them, and tokens become these texts again.
func TestTokensAreHuggingFaces(t *testing.T) {
	t.Parallel()
	for _, name := range forms {
		words, err := Open(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join("testdata", name, "answers.json"))
		if err != nil {
			t.Fatal(err)
		}
		var answers []struct {
			Text           string
			Tokens, Sample []int32
		}
		if err := json.Unmarshal(text, &answers); err != nil {
			t.Fatal(err)
		}
		if len(answers) < 30 {
			t.Errorf("%s has %d answers, want at least 30", name, len(answers))
		}
		for _, a := range answers {
			have := words.Encode(nil, []byte(a.Text))
			if !slices.Equal(have, a.Tokens) {
				t.Errorf("%s: %q: %v, want %v", name, a.Text, have, a.Tokens)
			}
			if have := words.(*Added).EncodeSample(nil, []byte(a.Text)); !slices.Equal(have, a.Sample) {
				t.Errorf("%s: %q as a sample: %v, want %v", name, a.Text, have, a.Sample)
			}
			back, err := words.Decode(nil, have)
			want := []string{a.Text}
			if name == "llama2" || name == "mistral" {
				marked := strings.ReplaceAll(a.Text, mark, " ")
				want = []string{marked, " " + marked, strings.NewReplacer("<s>", "<s> ", "</s>", "</s> ", "<unk>", "<unk> ").Replace(marked)}
			}
			if err != nil || !slices.Contains(lossy, name) && !slices.Contains(want, string(back)) {
				t.Errorf("%s: %q is %q again, %v", name, a.Text, back, err)
			}
		}
	}
}

// changedJSON returns a tokenizer.json in which a text stands for another one.
func changedJSON(t *testing.T, name, old, now string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name, jsonFile))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(text, []byte(old)) {
		t.Fatalf("%s has no %s", name, old)
	}
	return bytes.Replace(text, []byte(old), []byte(now), 1)
}

// A tokenizer that is not understood is refused by the field.
func TestBadJSON(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, old, now, want string }{
		{"gpt2", `"type":"BPE"`, `"type":"WordPiece"`, `field "type" is "ByteLevel", which is none of BertPreTokenizer, Metaspace, WhitespaceSplit`},
		{"gpt2", `"dropout":null`, `"dropout":0.1`, `field "dropout" is 0.1, which is not supported`},
		{"gpt2", `"continuing_subword_prefix":null`, `"continuing_subword_prefix":"##"`, `field "continuing_subword_prefix" is "##"`},
		{"gpt2", `"add_prefix_space":false`, `"add_prefix_space":true`, `field "add_prefix_space" is true`},
		{"gpt2", `"use_regex":true`, `"use_regex":false`, `the text is cut by no pattern`},
		{"gpt2", `"pre_tokenizer":{"type":"ByteLevel"`, `"pre_tokenizer":{"type":"Whitespace"`, `field "type" is "Whitespace", which is none of ByteLevel, Metaspace, Split`},
		{"gpt2", `"normalizer":null`, `"normalizer":{"type":"Lowercase"}`, `field "type" is "Lowercase", which is none of NFC, Prepend, Replace`},
		{"gpt2", `"version"`, `"other":1,"version"`, `field "other" is 1, which is not supported`},
		{"gpt2", `"type":"BPE"`, `"type":"WordLevel"`, `field "type" is "WordLevel", which is not supported: want BPE, Unigram or WordPiece`},
		{"gpt2", `"single_word":false`, `"single_word":true`, `added_tokens[0]: field "single_word" is true`},
		{"bert", `"max_input_chars_per_word":30`, `"max_input_chars_per_word":3000`, `field "max_input_chars_per_word" is 3000, which is not from 0 to 1000`},
		{"bert", `"unk_token":"[UNK]"`, `"unk_token":"[NONE]"`, `unk_token is "[NONE]", which is no token`},
		{"bert", `"BertPreTokenizer"`, `"Whitespace"`, `field "type" is "Whitespace", which is none of BertPreTokenizer, Metaspace, WhitespaceSplit`},
		{"bert", `"BertNormalizer"`, `"Nmt"`, `field "type" is "Nmt", which is none of BertNormalizer`},
		{"bert", `"ids":[2]`, `"ids":[9999]`, `post_processor: number 9999 is no token`},
		{"bert", `"id":"A","type_id":0`, `"id":"A","type_id":1`, `which has another type than 0`},
		{"bert", `"TemplateProcessing"`, `"Template"`, `post_processor: field "type" is "Template"`},
		{"t5", `"unk_id":2`, `"unk_id":null`, `field "unk_id" is missing`},
		{"t5", `"unk_id":2`, `"unk_id":900`, `field "unk_id" is 900, which is no token of`},
		{"t5", `["<pad>",0.0]`, `["<pad>"]`, `vocab[0] is ["<pad>"], want a token and its score`},
		{"t5", `["<pad>",0.0]`, `["",0.0]`, `vocab[0] is ["",0.0], want a token and its score`},
		{"t5", `"Regex":" {2,}"`, `"Regex":" +"`, `is neither a String nor the Regex " {2,}"`},
		{"t5", `"precompiled_charsmap":"`, `"precompiled_charsmap":"!`, `field "precompiled_charsmap"`},
		{"t5", `"prepend_scheme":"always"`, `"prepend_scheme":"first"`, `field "prepend_scheme" is "first", which is neither always nor never`},
		{"gpt2", `"id":500,`, `"id":502,`, `added_tokens[0]: token "<|endoftext|>" has number 502, want 500`},
		{"gpt2", `"Ġ":`, `"Ġ!!":`, `and they or what they become are no tokens`},
		{"gpt2", `"!":`, `"❤":`, `byte 33, written '!', is no token`},
		{"gpt2", `"!":0`, `"!":1`, `which another one has or which is out of range`},
		{"gpt2", `"!":0`, `"!":-1`, `token "!" has number -1`},
		{"llama3", `{1,3}`, `{1,2}`, `is none of the patterns of GPT-2, Llama 3 and Qwen 2`},
		{"llama3", `"Isolated"`, `"Removed"`, `field "behavior" is "Removed"`},
		{"llama2", `"byte_fallback":true`, `"byte_fallback":false`, `field "byte_fallback" is false`},
		{"llama2", `"prepend":"▁"`, `"prepend":"_"`, `field "prepend" is "_"`},
		{"llama2", `"<0x41>"`, `"<0x4>"`, `byte 65, written <0x41>, is no token`},
		{"mistral", `"split":false`, `"split":true`, `field "split" is true`},
		{"mistral", `"prepend_scheme":"first"`, `"prepend_scheme":"last"`, `field "prepend_scheme" is "last"`},
	} {
		if _, err := readJSON(changedJSON(t, c.name, c.old, c.now)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %s: %v, want %s", c.name, c.now, err, c.want)
		}
	}
	at := t.TempDir()
	if err := os.Symlink(filepath.Join("..", jsonFile), filepath.Join(at, jsonFile)); err == nil {
		if _, err := Open(at); !errors.Is(err, ErrVocabulary) {
			t.Error(err)
		}
	}
}

// No change of some bytes makes a panic, of reading or of tokens, nor tokens beyond the vocabulary.
func TestMutatedJSON(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	opened := 0
	for i := range 1500 {
		text, err := os.ReadFile(filepath.Join("testdata", forms[i%len(forms)], jsonFile))
		if err != nil {
			t.Fatal(err)
		}
		for range 1 + r.IntN(3) {
			at := r.IntN(len(text))
			switch r.IntN(3) {
			case 0:
				text[at] ^= 1 << r.IntN(8)
			case 1:
				text[at] = "0123456789-{}[]\",:"[r.IntN(18)]
			case 2:
				text = slices.Delete(text, at, min(at+1+r.IntN(8), len(text)))
			}
		}
		a, err := readJSON(text)
		if err != nil {
			continue
		}
		opened++
		for _, token := range a.Encode(nil, []byte("The quick <s> fox, 123 über\n\n <|end|>")) {
			if token < 0 || int(token) >= a.Size() {
				t.Fatalf("token %d of %d", token, a.Size())
			}
		}
	}
	if opened < 10 {
		t.Errorf("%d of 1500 were opened: want at least 10", opened)
	}
}
