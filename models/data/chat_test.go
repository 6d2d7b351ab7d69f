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
