package data

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// chatCase is one of testdata/chat.json, which chat.py makes with transformers.
type chatCase struct {
	Name, Template string
	Messages       []map[string]any
	Prompt         bool
	Text, Error    string
}

// chatOf is the template of a folder.
func chatOf(t *testing.T, template string) *chat {
	t.Helper()
	folder := t.TempDir()
	config, err := json.Marshal(map[string]any{"chat_template": template, "bos_token": "<s>", "eos_token": map[string]any{"content": "</s>"}, "pad_token": nil})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(folder, chatConfig), config, 0o600))
	c, err := openChat(folder)
	must(t, err)
	return c
}

// TestChatsAreTransformers: templates make the text that transformers makes, and refuse what it refuses.
func TestChatsAreTransformers(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/chat.json")
	must(t, err)
	var cases []chatCase
	must(t, json.Unmarshal(raw, &cases))
	if len(cases) < 24 {
		t.Fatalf("%d cases", len(cases))
	}
	for _, c := range cases {
		text, err := chatOf(t, c.Template).render(c.Messages, c.Prompt)
		if c.Error != "" {
			if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), c.Error) {
				t.Errorf("%s of %v: %q, %v; want the error %q", c.Name, c.Messages, text, err, c.Error)
			}
		} else if err != nil || text != c.Text {
			t.Errorf("%s of %v, prompt %v:\n got %q, %v\nwant %q", c.Name, c.Messages, c.Prompt, text, err, c.Text)
		}
	}
}

// TestTemplatesOutside: a link that leads out of the folder is not followed.
func TestTemplatesOutside(t *testing.T) {
	t.Parallel()
	secret := write(t, filepath.Join(t.TempDir(), "secret"), []byte("{{ messages }}"))
	dir := t.TempDir()
	must(t, os.Symlink(secret, filepath.Join(dir, chatFile)))
	if _, err := openChat(dir); !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), chatFile) {
		t.Errorf("%v, want it refused", err)
	}
}

// TestTemplatesThatDoNotEnd: loops in loops, macros that call themselves and templates that read themselves are refused, in little time.
func TestTemplatesThatDoNotEnd(t *testing.T) {
	t.Parallel()
	messages := []map[string]any{{"role": "user", "content": "a"}}
	for template, want := range map[string]string{
		"{% for a in range(60000) %}{% for b in range(60000) %}{% for c in range(60000) %}{%- set x = 1 -%}{% endfor %}{% endfor %}{% endfor %}": "more than 131072 rounds",
		"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}":                                                    "macros of the template call each other more than 100 deep",
		"{% macro f(n) %}{% if f(n) %}{% endif %}{% endmacro %}{% if f(1) %}{% endif %}":                     "macros of the template call each other more than 100 deep",
		"{% macro g() %}{{ f() }}{% endmacro %}{% macro f() %}{{ g() }}{% endmacro %}{{ f() }}":              "more than 100 deep",
		"{% macro f(n) %}{% for i in range(9) %}{{ f(n) if n else '' }}{% endfor %}{% endmacro %}{{ f(1) }}": "more than 100 deep",
	} {
		if text, err := chatOf(t, template).render(messages, false); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %.40q, %v, want %s", template, text, err, want)
		}
	}
	for template, want := range map[string]string{
		"{% include '/chat' %}": "include", "{% extends '/chat' %}": "extends", "{% import '/chat' as c %}": "import", "{% block a %}{{ self.a() }}{% endblock %}": "block",
		"{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}": "a loop that calls itself (recursive) is not supported",
	} {
		folder := t.TempDir()
		write(t, filepath.Join(folder, chatFile), []byte(template))
		if _, err := openChat(folder); !errors.Is(err, ErrOption) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", template, err, want)
		}
	}
	text, err := chatOf(t, "{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(9) }}{% for i in range(300) %}{% if i > 1 %}{% break %}{% endif %}.{% endfor %}").render(messages, false)
	if err != nil || text != "9876543210.." {
		t.Errorf("%q, %v", text, err)
	}
}
