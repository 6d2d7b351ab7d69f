package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plimsoll/executor/checkpoint/safetensors"
	"plimsoll/models/tokenizer"
)

// folderOf returns a copy of a folder that transformers has written, small, and a file of tokens of its vocabulary.
func folderOf(t *testing.T, name string) (folder, tokens string) {
	t.Helper()
	folder, tokens = t.TempDir(), filepath.Join(t.TempDir(), "tokens.bin")
	if err := os.CopyFS(folder, os.DirFS(filepath.Join("..", "..", "models", "huggingface", "testdata", name))); err != nil {
		t.Fatal(err)
	}
	all := make([]int32, 1200)
	for i := range all {
		all[i] = int32(i*i+i/7) % 96
	}
	if err := tokenizer.WriteFile(tokens, tokenizer.NewTokens(all, 96), 96); err != nil {
		t.Fatal(err)
	}
	return folder, "tokens:" + tokens
}

// tensorsOf returns the names and shapes of a file's tensors.
func tensorsOf(t *testing.T, path string) (all []string) {
	t.Helper()
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range f.Tensors() {
		text, _ := json.Marshal(x.Shape)
		all = append(all, x.Name+string(text))
	}
	slices.Sort(all)
	return all
}

// A folder trains under a limit to the bits of training without one, and what is written is a folder with the same tensors that evaluates
// as the run has. Only this test finds a folder whose weights are not those that training begins with, or that is written otherwise.
func TestTrainFolder(t *testing.T) {
	t.Parallel()
	folder, data := folderOf(t, "qwen3-tied")
	write(t, filepath.Join(folder, "special_tokens_map.json"), "{}")
	train := func(more ...string) (out string) {
		t.Helper()
		out = filepath.Join(t.TempDir(), "run")
		works(t, append([]string{"train", "-m", folder, "--data", data, "--length", "16", "--batch", "8", "--steps", "3", "--lr", "0.05", "--option", "profile.steps=1", "--out", out}, more...)...)
		return out
	}
	out := train()
	final := filepath.Join(out, "final")
	weights := filepath.Join(final, "model.safetensors")
	if read(t, weights) != read(t, filepath.Join(train("--memory", "70%"), "final", "model.safetensors")) {
		t.Error("under a limit the weights are others")
	}
	if have, want := tensorsOf(t, weights), tensorsOf(t, filepath.Join(folder, "model.safetensors")); !slices.Equal(have, want) {
		t.Errorf("tensors are %v, want %v", have, want)
	}
	if read(t, filepath.Join(final, "special_tokens_map.json")) != "{}" || !strings.Contains(read(t, filepath.Join(final, "config.json")), `"model_type": "qwen3"`) {
		t.Error("the files beside the weights are not those of the folder")
	}
	loss := func(args ...string) float64 {
		t.Helper()
		var f evaluateFigures
		r := works(t, append([]string{"evaluate", "--json", "--data", data, "--length", "16", "--batch", "8"}, args...)...)
		if err := json.Unmarshal([]byte(r.out), &f); err != nil {
			t.Fatal(err)
		}
		return f.Loss
	}
	before, after := loss("-m", folder), loss("-m", final)
	if !(after < before) || math.Abs(after-loss("-m", folder, "--weights", out)) != 0 {
		t.Errorf("the loss is %v, and was %v; the run's folder as weights gives another one", after, before)
	}
	if r := plimsoll(t, "train", "-m", folder, "--data", data, "--length", "16", "--steps", "3", "--out", out); r.code != exitUsage || !strings.Contains(r.err, "holds a run") {
		t.Errorf("%d, %s", r.code, r.err)
	}
	write(t, filepath.Join(final, "added_tokens.json"), "{}") // of a run before
	works(t, "train", "-m", folder, "--data", data, "--length", "16", "--batch", "8", "--steps", "1", "--option", "profile.steps=1", "--out", out, "--force")
	if _, err := os.Stat(filepath.Join(final, "added_tokens.json")); err == nil {
		t.Error("--force leaves files of the run before")
	}
}

// A classifier of images trains from its folder, and what is written is a folder of the same tensors. Only this test finds a model that the
// program takes for one of text.
func TestTrainFolderOfClassifier(t *testing.T) {
	t.Parallel()
	folder, _ := folderOf(t, "vit")
	out, data := filepath.Join(t.TempDir(), "run"), "folder:"+pictures(t)
	works(t, "train", "-m", folder, "--data", data, "--batch", "4", "--steps", "2", "--option", "profile.steps=1", "--memory", "100%", "--out", out)
	final := filepath.Join(out, "final")
	if have, want := tensorsOf(t, filepath.Join(final, "model.safetensors")), tensorsOf(t, filepath.Join(folder, "model.safetensors")); !slices.Equal(have, want) {
		t.Errorf("tensors are %v, want %v", have, want)
	}
	works(t, "evaluate", "-m", final, "--data", data, "--batch", "4")
}

// wordsOf is a folder with a WordPiece tokenizer of letters.
func wordsOf(t *testing.T, more string) string {
	t.Helper()
	vocab := []string{`"[PAD]":0`, `"[UNK]":1`, `"[CLS]":2`, `"[SEP]":3`, `"[MASK]":4`}
	for c := 'a'; c <= 'z'; c++ {
		vocab = append(vocab, fmt.Sprintf(`"%c":%d,"##%c":%d`, c, 5+2*(c-'a'), c, 6+2*(c-'a')))
	}
	folder := t.TempDir()
	write(t, filepath.Join(folder, "tokenizer.json"), `{"normalizer":{"type":"BertNormalizer"},"pre_tokenizer":{"type":"BertPreTokenizer"},
		"post_processor":{"type":"BertProcessing","cls":["[CLS]",2],"sep":["[SEP]",3]},"added_tokens":[`+more+`],
		"model":{"type":"WordPiece","unk_token":"[UNK]","vocab":{`+strings.Join(vocab, ",")+`}}}`)
	write(t, filepath.Join(folder, "tokenizer_config.json"), `{"pad_token": "[PAD]"}`)
	return folder
}

// Text encoders train on texts with labels and on masked text, evaluate, and write folders of the same tensors.
func TestTrainTextEncoders(t *testing.T) {
	t.Parallel()
	labels := write(t, filepath.Join(t.TempDir(), "labels.jsonl"), strings.Repeat(`{"text": "a b", "label": 1}`+"\n"+`{"text": "c", "label": 0}`+"\n", 20))
	text := write(t, filepath.Join(t.TempDir(), "text.txt"), strings.Repeat("the quick brown fox jumps over the lazy dog ", 50))
	const special = `{"id":0,"content":"[PAD]","normalized":false,"special":true}`
	words := wordsOf(t, special+`,{"id":4,"content":"[MASK]","normalized":false,"special":true}`)
	for name, data := range map[string]string{"bert": "text:" + text, "distilbert-classes": "jsonl:" + labels} {
		folder, _ := folderOf(t, name)
		out := filepath.Join(t.TempDir(), "run")
		args := []string{"--data", data, "--tokenizer", words, "--length", "8", "--batch", "4"}
		works(t, append([]string{"train", "-m", folder, "--steps", "2", "--option", "profile.steps=1", "--memory", "100%", "--out", out}, args...)...)
		final := filepath.Join(out, "final")
		if have, want := tensorsOf(t, filepath.Join(final, "model.safetensors")), tensorsOf(t, filepath.Join(folder, "model.safetensors")); !slices.Equal(have, want) {
			t.Errorf("%s: tensors are %v, want %v", name, have, want)
		}
		works(t, append([]string{"evaluate", "-m", final}, args...)...)
		if r := plimsoll(t, "generate", "-m", final, "--tokenizer", words, "--prompt", "a"); r.code != exitUsage || !strings.Contains(r.err, "sees a text whole and tells no next token") {
			t.Errorf("%s: %d, %s", name, r.code, r.err)
		}
	}
	folder, _ := folderOf(t, "bert")
	r := plimsoll(t, "train", "-m", folder, "--data", "text:"+text, "--tokenizer", wordsOf(t, special), "--length", "8")
	if r.code != exitUsage || !strings.Contains(r.err, "has no token that masks them: give a folder whose tokenizer_config.json has mask_token") {
		t.Errorf("%d, %s", r.code, r.err)
	}
}

// A snapshot in Hugging Face's cache, whose files are links, trains as the folder that it stands for.
func TestTrainSnapshot(t *testing.T) {
	t.Parallel()
	folder, data := folderOf(t, "llama")
	model := filepath.Join(t.TempDir(), "models--org--llama")
	snapshot := filepath.Join(model, "snapshots", "0123abcd")
	if err := errors.Join(os.MkdirAll(snapshot, 0o755), os.Rename(folder, filepath.Join(model, "blobs"))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"config.json", "model.safetensors"} {
		if err := os.Symlink(filepath.Join("..", "..", "blobs", name), filepath.Join(snapshot, name)); err != nil {
			t.Skip(err)
		}
	}
	out := filepath.Join(t.TempDir(), "run")
	works(t, "train", "-m", snapshot, "--data", data, "--length", "16", "--batch", "4", "--steps", "1", "--option", "profile.steps=1", "--out", out)
	final := filepath.Join(out, "final", "model.safetensors")
	if have, want := tensorsOf(t, final), tensorsOf(t, filepath.Join(model, "blobs", "model.safetensors")); !slices.Equal(have, want) {
		t.Errorf("tensors are %v, want %v", have, want)
	}
	if info, err := os.Lstat(final); err != nil || !info.Mode().IsRegular() {
		t.Error(info, err)
	}
}

// Folders are refused with what is wrong, before anything is measured.
func TestFoldersThatAreRefused(t *testing.T) {
	t.Parallel()
	folder, data := folderOf(t, "llama")
	bare, _ := folderOf(t, "llama")
	if err := os.Remove(filepath.Join(bare, "model.safetensors")); err != nil {
		t.Fatal(err)
	}
	other, _ := folderOf(t, "gpt2")
	masked, _ := folderOf(t, "bert")
	classes, _ := folderOf(t, "roberta-classes")
	images, _ := folderOf(t, "vit")
	labels := "jsonl:" + write(t, filepath.Join(t.TempDir(), "labels.jsonl"), strings.Repeat(`{"text": "a b", "label": 1}`+"\n", 20))
	for args, want := range map[string]string{
		"train -m FOLDER":                                   "is a folder without tokenizer.json: give --tokenizer, or tokens, as in --data tokens:PATH",
		"train -m FOLDER --tokenizer bytes":                 "has a vocabulary of 96 tokens, and data set opticks one of 256",
		"train -m FOLDER --data DATA --classes 100":         "has a vocabulary of 96 tokens, not 100: leave --classes out",
		"train -m BARE --data DATA":                         "it is a folder without weights",
		"train -m FOLDER --data DATA --init OTHER":          "its tensors are not the model's: 21 missing: model.embed_tokens.weight",
		"evaluate -m FOLDER --data DATA --weights OTHER":    "its tensors are not the model's: 21 missing: model.embed_tokens.weight",
		"train -m FOLDER --data DATA --out RUN --dtype f16": "--dtype",
		"train -m MASKED --data DATA":                       "tells masked tokens, and --tokenizer bytes has no token that masks them",
		"train -m CLASSES --data DATA":                      "gives a text a class, and data set",
		"train -m CLASSES --data JSONL --tokenizer bytes":   "has a vocabulary of 96 tokens, and --tokenizer bytes one of 256: give the tokenizer",
		"train -m PICTURES --data digits":                   "has 5 classes, and data set digits has 10",
		"train -m PICTURES --data shapes --image 32":        "--image is 32, and field \"image_size\" of its config.json is 16: leave --image out",
	} {
		line := strings.NewReplacer("FOLDER", folder, "DATA", data, "BARE", bare, "OTHER", other, "MASKED", masked, "CLASSES", classes, "PICTURES", images,
			"JSONL", labels, "RUN", filepath.Join(t.TempDir(), "run")).Replace(args)
		if r := plimsoll(t, strings.Fields(line)...); r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%s: exit code %d, %s, want %s", args, r.code, r.err, want)
		}
	}
	works(t, "fit", "-m", bare, "--data", data, "--memory", "64MiB") // which needs no weights
}

// A folder with a tokenizer trains on text, evaluates and continues text by it; the tokenizer goes with the weights.
func TestFolderWithTokenizer(t *testing.T) {
	t.Parallel()
	folder, _ := folderOf(t, "gpt2")
	words := filepath.Join("..", "..", "models", "tokenizer", "testdata", "qwen2")
	write(t, filepath.Join(folder, "tokenizer.json"), read(t, filepath.Join(words, "tokenizer.json")))
	text := write(t, filepath.Join(t.TempDir(), "text.txt"), strings.Repeat("The quick brown fox jumps over the lazy dog. ", 200))
	if r := plimsoll(t, "train", "-m", folder, "--data", "text:"+text, "--length", "16"); r.code != exitUsage || !strings.Contains(r.err, "has a vocabulary of 96 tokens, and data set text:"+text+" one of 503") {
		t.Errorf("%d, %s", r.code, r.err)
	}
	out := filepath.Join(t.TempDir(), "run")
	model := "gpt2-1-16"
	args := []string{"--length", "16", "--batch", "8", "--tokenizer", words}
	works(t, append([]string{"train", "-m", model, "--data", "text:" + text, "--steps", "2", "--option", "profile.steps=1", "--out", out}, args...)...)
	r := works(t, "generate", "-m", model, "--length", "16", "--tokenizer", words, "--weights", out, "--prompt", "The quick", "--tokens", "3", "--json")
	if !strings.Contains(r.out, `"prompt": "The quick"`) {
		t.Error(r.out)
	}
}
