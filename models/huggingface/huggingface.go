// Package huggingface reads the folders that transformers saves models in: config.json says the model, safetensors files have its
// weights, tokenizer.json its tokenizer.
//
// A field of config.json is honoured or refused by its name, unless it is known to change no number. Nothing outside the folder is read.
// The package reads no weights: a run takes them from the folder as it takes those of --init.
package huggingface

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"plimsoll/internal/fields"
	"plimsoll/internal/folder"
	"plimsoll/models"
)

func init() { models.RegisterFolder(configFile, Open) }

// ErrFolder says that a folder has a model that cannot be built as transformers builds it; the message names the field.
var ErrFolder = errors.New("unsupported folder")

const configFile = "config.json"

// tokenizerFiles are the files that say how text becomes tokens; besideFiles are the others that go with weights.
var (
	tokenizerFiles = []string{"tokenizer.json", "vocab.json"}
	besideFiles    = append([]string{
		"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt", "tokenizer.model", "chat_template.jinja", "generation_config.json",
		"vocab.txt", "preprocessor_config.json",
	}, tokenizerFiles...)
)

// Open returns the model of a folder. Errors: ErrFolder, folder.ErrForeign, those of the operating system.
func Open(path string) (models.File, error) {
	at := folder.At(path)
	text, err := at.ReadFile(configFile)
	if err != nil {
		return models.File{}, err
	}
	c, err := readConfig(text)
	if err != nil {
		return models.File{}, fmt.Errorf("%w: %s: %w", ErrFolder, filepath.Join(path, configFile), err)
	}
	f := models.File{
		Known:    models.Known{Name: path, Summary: "of a folder", Image: c.size(), Classes: c.classes, Build: c.model},
		Channels: max(c.channels, 1), Text: c.image == 0, PerSample: c.perSample, Masked: c.masked, Vocabulary: c.language.Vocabulary, Weights: path,
		Beside: func() (map[string][]byte, error) { return beside(at, text) },
	}
	if f.Text && slices.ContainsFunc(tokenizerFiles, at.Has) {
		f.Tokenizer = path
	}
	return f, nil
}

// beside returns the files that a folder of trained weights has besides them.
func beside(at *folder.Dir, config []byte) (map[string][]byte, error) {
	all := map[string][]byte{}
	for _, name := range besideFiles {
		text, err := at.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all[name] = text
	}
	var err error
	all[configFile], err = inFloat32(config)
	return all, err
}

// inFloat32 returns a config whose weights are float32, as they are written: transformers computes in the type that the config names.
func inFloat32(config []byte) ([]byte, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(config, &all); err != nil {
		return nil, err
	}
	for _, name := range []string{"dtype", "torch_dtype"} {
		if _, has := all[name]; has {
			all[name] = json.RawMessage(`"float32"`)
		}
	}
	if all["dtype"] == nil && all["torch_dtype"] == nil {
		all["dtype"] = json.RawMessage(`"float32"`)
	}
	var text strings.Builder
	err := fields.Indented(all)(&text)
	return []byte(text.String()), err
}

// readConfig reads the text of a config.json.
func readConfig(text []byte) (*config, error) {
	o, err := fields.Parse(text)
	if err != nil {
		return nil, err
	}
	r := &reader{o: o}
	o.Require("model_type")
	kind := o.String("model_type", "")
	family, known := families[kind]
	if !known && o.Err() == nil {
		o.Refuse("model_type", fmt.Sprintf("%q", kind), "is none of "+strings.Join(slices.Sorted(maps.Keys(families)), ", "))
	}
	if o.Err() != nil {
		return nil, o.Err()
	}
	c := family.read(r, r.checkArchitecture(family.architectures))
	r.finish()
	return c, o.Err()
}
