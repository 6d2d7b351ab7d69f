package models

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// File is a model that is read from a file. Its name is the file's path.
type File struct {
	Known
	Channels int  // of its images
	Text     bool // it reads tokens, not images
	Axes     int  // of a sample of numbers: 1 of N,F, whose F are Channels, 2 of N,C,T, whose T are Image; 0: it reads images or tokens
	// PerSample is true where a sample of tokens has one class, false where each token has one.
	PerSample bool
	// Vocabulary is the number of tokens that a model with PerSample reads; 0: the file does not tell.
	Vocabulary int
	// Masked is true where each token's logits are of that token, which a model that sees both sides can tell only where it is masked.
	Masked bool
	// Weights is the path of the weights that a run begins with; "": the parameters have them (see Parameter.Fill).
	Weights string
	// Tokenizer names the tokenizer, as tokenizer.Open takes it; "": the file names none.
	Tokenizer string
	// Beside returns the files that trained weights are saved with, by name, in a folder of the model; nil: there are none.
	Beside func() (map[string][]byte, error)
	// About describes the model that was read, in sentences for people.
	About []string
}

// formats are the readers of files, by the ending of their names.
var formats = map[string]func(path string) (File, error){}

// RegisterFormat makes files known whose names have an ending, as in ".onnx", to all that take a model's name; call it from an init
// function.
func RegisterFormat(ending string, open func(path string) (File, error)) { formats[ending] = open }

// folders are the readers of folders, by the name of a file that they have.
var folders = map[string]func(path string) (File, error){}

// RegisterFolder makes folders known that have a file of a name, as in "config.json"; see RegisterFormat.
func RegisterFolder(file string, open func(path string) (File, error)) { folders[file] = open }

// opened are the files that were read.
var opened struct {
	sync.Mutex
	files map[string]openedFile
}

// openedFile is one, as it was.
type openedFile struct {
	File
	size int64
	time time.Time
}

// Open returns the model of a file; false: the name is not that of a file of a known format. A file is read once, and again when
// it has changed. Errors: those of the operating system and of the format.
func Open(name string) (f File, is bool, err error) {
	open, file := formatOf(name)
	if open == nil {
		return File{}, false, nil
	}
	info, err := os.Stat(file)
	if err != nil {
		return File{}, true, err
	}
	opened.Lock()
	defer opened.Unlock()
	if o, ok := opened.files[name]; ok && o.size == info.Size() && o.time.Equal(info.ModTime()) {
		return o.File, true, nil
	}
	if f, err = open(name); err != nil {
		return File{}, true, err
	}
	if opened.files == nil {
		opened.files = map[string]openedFile{}
	}
	opened.files[name] = openedFile{f, info.Size(), info.ModTime()}
	return f, true, nil
}

// formatOf returns the reader of a name's file, whatever the case of its ending, or of its folder; nil: there is none. It also
// returns the file that tells when the model has changed.
func formatOf(name string) (open func(path string) (File, error), file string) {
	for ending, open := range formats {
		if strings.HasSuffix(strings.ToLower(name), ending) {
			return open, name
		}
	}
	for marker, open := range folders {
		if file := filepath.Join(name, marker); isPath(name) && isFile(file) {
			return open, file
		}
	}
	return nil, ""
}

// isOfFile reports whether a name is that of a file or a folder with a model.
func isOfFile(name string) bool {
	open, _ := formatOf(name)
	return open != nil
}

// isPath reports whether a name that is no model's is meant as that of a file: it has a slash, or there is one.
func isPath(name string) bool {
	_, err := os.Stat(name)
	return err == nil || strings.ContainsAny(name, `/\`)
}

// holdsWeights reports whether a name is one of a file in which PyTorch and Hugging Face keep weights alone.
func holdsWeights(name string) bool {
	return slices.Contains([]string{".pt", ".pth", ".bin", ".ckpt", ".safetensors"}, strings.ToLower(filepath.Ext(name)))
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
