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

// fixtures are the small models of torch_export.py and torch_folders.py, which the tests of the formats' packages read too.
const (
	fixtures = "../../../../models/onnx/testdata"
	archives = "../../../../models/torchexport/testdata"
	folders  = "../../../../models/huggingface/testdata"
)

// Losses of small models are those that PyTorch has computed.
func TestSmallModelsArePyTorchs(t *testing.T) {
	t.Parallel()
	for folder, least := range map[string]int{fixtures: 6, archives: 30, folders: 17} {
		folders, err := filepath.Glob(filepath.Join(folder, "*", "reference.json"))
		if err != nil {
			t.Fatal(err)
		}
		if len(folders) < least {
			t.Errorf("%s has %d models, want at least %d", folder, len(folders), least)
		}
		for _, file := range folders {
			r := same(t, filepath.Dir(file))
			if moved := r.Losses[0] - r.Losses[steps-1]; moved < 0.05 {
				t.Errorf("%s: PyTorch's loss falls by %v alone: wrong gradients would not show", file, moved)
			}
		}
	}
}

func same(t *testing.T, folder string) *result {
	t.Helper()
	r, err := compare(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(r)
	if err := r.check(); err != nil {
		t.Error(err)
	}
	return r
}

// torchvisions are the models whose files train as PyTorch trains them.
var torchvisions = strings.Fields("resnet18 resnet50 resnext50_32x4d vgg11 vgg11_bn densenet121 alexnet squeezenet1_1 mobilenet_v2 mnasnet0_5 inception_v3 googlenet")

// Those of torchvision's models are what PyTorch computes now, with the Python of PLIMSOLL_TORCH.
func TestTorchvisionsModelsArePyTorchs(t *testing.T) {
	t.Parallel()
	python := os.Getenv("PLIMSOLL_TORCH")
	if python == "" {
		t.Skip("PLIMSOLL_TORCH names no Python with torch: make test-oracle does")
	}
	for _, name := range torchvisions {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			for _, format := range []string{"onnx", "pt2"} {
				folder := filepath.Join(folder, format)
				if out, err := exec.Command(python, "../src/torch_export.py", name, folder, "--format", format).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				same(t, folder)
			}
		})
	}
}

// A loss or a file that is not PyTorch's is found.
func TestDifferencesAreFound(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(all map[string]any){
		"differ by up to": func(all map[string]any) { all["losses"].([]any)[2] = 1.001 * all["losses"].([]any)[2].(float64) },
		"parameters":      func(all map[string]any) { all["parameters"] = 7 },
		"3 labels":        func(all map[string]any) { all["labels"] = []int{1, 2, 3} },
		"0 losses":        func(all map[string]any) { all["losses"] = []any{} },
		"bytes, want":     func(all map[string]any) { all["image"] = 8 },
	} {
		folder := t.TempDir()
		for _, name := range []string{"model.onnx", "images.f32", "reference.json"} {
			text, err := os.ReadFile(filepath.Join(fixtures, "skips", name))
			if err == nil && name == "images.f32" && what == "bytes, want" {
				text = text[:len(text)-4]
			}
			if err == nil && name == "reference.json" {
				all := map[string]any{}
				if err = json.Unmarshal(text, &all); err == nil {
					change(all)
					text, err = json.Marshal(all)
				}
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(folder, name), text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		r, err := compare(folder)
		if err == nil {
			err = r.check()
		}
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %s", err, what)
		}
	}
}
