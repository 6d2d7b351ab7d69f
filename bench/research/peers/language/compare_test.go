//go:build cgo

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// python is one with torch, as make test-oracle has it: that of PLIMSOLL_TORCH.
func python(t *testing.T) string {
	p := os.Getenv("PLIMSOLL_TORCH")
	if p == "" {
		t.Skip("PLIMSOLL_TORCH names no Python with torch: make test-oracle does")
	}
	return p
}

// Losses and gradients of tiny models are those that PyTorch has computed: the files in testdata.
func TestTinyModelsArePyTorchs(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"gpt2-tied", "gpt2-untied", "gpt2-eps", "llama-tied", "llama-untied", "llama-theta-eps"} {
		t.Run(name, func(t *testing.T) { same(t, filepath.Join("testdata", name)) })
	}
}

func same(t *testing.T, folder string) *result {
	t.Helper()
	r, err := compare(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(r)
	if err := r.check(); err != nil || r.gradients < 10 {
		t.Errorf("%d gradients: %v", r.gradients, err)
	}
	return r
}

// The same of what PyTorch computes now, in all sizes; GPT-2 has as many parameters as published.
func TestModelsArePyTorchs(t *testing.T) {
	t.Parallel()
	python := python(t)
	for _, args := range []string{"gpt2 tiny", "llama tiny", "gpt2 124M", "llama 124M", "gpt2 124M --untied", "llama 124M --untied"} {
		t.Run(args, func(t *testing.T) {
			folder := t.TempDir()
			f := strings.Fields(args)
			command := append([]string{"../src/torch_language.py", f[0], f[1], folder}, f[2:]...)
			if out, err := exec.Command(python, command...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if r := same(t, folder); args == "gpt2 124M" && r.Parameters != 124_439_808 {
				t.Errorf("%d parameters", r.Parameters)
			}
		})
	}
}

// A loss, a gradient or a file that is not PyTorch's is found.
func TestDifferencesAreFound(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(t *testing.T, folder string){
		"losses differ": func(t *testing.T, folder string) {
			edit(t, folder, func(all map[string]any) { all["losses"].([]any)[9] = 1.001 * all["losses"].([]any)[9].(float64) })
		},
		"gradients by up to": func(t *testing.T, folder string) {
			write(t, filepath.Join(folder, "gradients.safetensors"), read(t, filepath.Join(folder, "weights.safetensors")))
		},
		"parameters":   func(t *testing.T, folder string) { edit(t, folder, func(all map[string]any) { all["parameters"] = 7 }) },
		"want gpt2 or": func(t *testing.T, folder string) { edit(t, folder, func(all map[string]any) { all["model"] = "bert" }) },
		"losses": func(t *testing.T, folder string) {
			edit(t, folder, func(all map[string]any) { all["losses"] = []any{} })
		},
		"3 labels": func(t *testing.T, folder string) {
			edit(t, folder, func(all map[string]any) { all["labels"] = []any{1, 2, 3} })
		},
		"weights.safet": func(t *testing.T, folder string) {
			write(t, filepath.Join(folder, "weights.safetensors"), []byte("no"))
		},
	} {
		folder := t.TempDir()
		for _, name := range []string{"reference.json", "weights.safetensors", "gradients.safetensors"} {
			write(t, filepath.Join(folder, name), read(t, filepath.Join("testdata", "gpt2-tied", name)))
		}
		change(t, folder)
		r, err := compare(folder)
		if err == nil {
			err = r.check()
		}
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %s", err, what)
		}
	}
}

func edit(t *testing.T, folder string, change func(map[string]any)) {
	t.Helper()
	path, all := filepath.Join(folder, "reference.json"), map[string]any{}
	if err := json.Unmarshal(read(t, path), &all); err != nil {
		t.Fatal(err)
	}
	change(all)
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, text)
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
