package tokenizer

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestEndOfDocuments: it is the token that tokenizer_config.json calls eos_token, as a string or as an object.
func TestEndOfDocuments(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("testdata/llama2/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ config, end, fails string }{
		{`{"eos_token": "</s>"}`, "</s>", ""},
		{`{"eos_token": {"content": "</s>", "special": true}}`, "</s>", ""},
		{`{"eos_token": null}`, "", ""},
		{`{}`, "", ""},
		{"", "", ""},
		{`{"eos_token": "<gone>"}`, "", `eos_token is "<gone>", which tokenizer.json does not have`},
		{`[`, "", configFile},
	} {
		dir := t.TempDir()
		write(t, dir, jsonFile, string(file))
		if c.config != "" {
			write(t, dir, configFile, c.config)
		}
		by, err := OpenJSON(dir)
		if c.fails != "" {
			if !errors.Is(err, ErrVocabulary) || !strings.Contains(err.Error(), c.fails) || !strings.Contains(err.Error(), filepath.Join(dir, configFile)) {
				t.Errorf("%s: %v, want %q", c.config, err, c.fails)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if c.end == "" {
			if by.End() != -1 {
				t.Errorf("%s: the end is token %d", c.config, by.End())
			}
			continue
		}
		if text, err := by.Decode(nil, []int32{by.End()}); err != nil || string(text) != c.end {
			t.Errorf("%s: the end is token %d, %q, %v", c.config, by.End(), text, err)
		}
	}
}

// TestContinue: text behind other text has no space put ahead of it, and the token that fills samples is pad_token.
func TestContinue(t *testing.T) {
	t.Parallel()
	for _, name := range forms {
		by, err := OpenJSON(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		parts := by.Continue(by.Encode(nil, []byte("the ship")), []byte(" floats"))
		if whole := by.Encode(nil, []byte("the ship floats")); !slices.Equal(parts, whole) {
			t.Errorf("%s: two parts are %v, the whole text %v", name, parts, whole)
		}
		if by.Pad() != -1 {
			t.Errorf("%s: samples are filled with %d", name, by.Pad())
		}
	}
	dir := t.TempDir()
	file, err := os.ReadFile("testdata/llama2/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, jsonFile, string(file))
	write(t, dir, configFile, `{"pad_token": "<unk>"}`)
	if by, err := OpenJSON(dir); err != nil || by.Pad() != 0 || by.End() != -1 {
		t.Errorf("pad_token: %v", err)
	}
}
