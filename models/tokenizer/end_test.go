package tokenizer

import (
	"errors"
	"os"
	"path/filepath"
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
