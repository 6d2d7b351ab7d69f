package models

import (
	"os"
	"strings"
	"sync"
	"time"
)

// File is a model that is read from a file. Its name is the file's path.
type File struct {
	Known
	Channels int  // of its images
	Text     bool // it reads tokens, not images
	// PerSample is true where a sample of tokens has one class, false where each token has one.
	PerSample bool
	// About describes the model that was read, in sentences for people.
	About []string
}

// formats are what reads files, by the ending of their names.
var formats = map[string]func(path string) (File, error){}

// RegisterFormat makes files known whose names have an ending, as in ".onnx", to all that take a model's name; call it from an init
// function.
func RegisterFormat(ending string, open func(path string) (File, error)) { formats[ending] = open }

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
	open := formatOf(name)
	if open == nil {
		return File{}, false, nil
	}
	info, err := os.Stat(name)
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

// formatOf returns what reads the files of a name, whatever the case of its ending; nil: nothing does.
func formatOf(name string) func(path string) (File, error) {
	for ending, open := range formats {
		if strings.HasSuffix(strings.ToLower(name), ending) {
			return open
		}
	}
	return nil
}

// isPath reports whether a name that is no model's is meant as that of a file: it has a slash, or there is one.
func isPath(name string) bool {
	_, err := os.Stat(name)
	return err == nil || strings.ContainsAny(name, `/\`)
}
