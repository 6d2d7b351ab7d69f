package huggingface

import (
	"fmt"

	"plimsoll/models"
)

// normalLength is the tokens of a sample where a model can have more.
const normalLength = 64

// config holds the model of a config.json, and builds it.
type config struct {
	language models.Language // of decoders and text encoders, for no batch yet
	classes  int             // of a sample or a pixel; of tokens the vocabulary
	image    int             // pixels of each side of a sample; 0: it is a text
	channels int             // of images
	// perSample and masked are those of models.File.
	perSample, masked bool
	longest           longest
	build             func(name string, of models.Config) (*models.Model, error)
}

// longest is the most tokens that a sample may have, and the field that says so; 0: there is no limit.
type longest struct {
	tokens int
	field  string
}

// size returns the size of a sample that a run has unless it is told another one.
func (c *config) size() int {
	switch {
	case c.image > 0:
		return c.image
	case c.longest.tokens > 0:
		return min(c.longest.tokens, normalLength)
	}
	return normalLength
}

// model builds the model for a configuration.
func (c *config) model(name string, of models.Config) (*models.Model, error) {
	switch {
	case of.Classes != c.classes && (c.perSample || c.image > 0):
		return nil, fmt.Errorf("%w: %s has %d classes, as field \"id2label\" of its config.json says, not %d: leave --classes out", models.ErrConfig, name, c.classes, of.Classes)
	case of.Classes != c.classes:
		return nil, fmt.Errorf("%w: %s has a vocabulary of %d tokens, not %d: leave --classes out", models.ErrConfig, name, c.classes, of.Classes)
	case c.image > 0 && of.Image != c.image:
		return nil, fmt.Errorf("%w: %s: --image is %d, and field \"image_size\" of its config.json is %d: leave --image out", models.ErrConfig, name, of.Image, c.image)
	case c.image > 0 && of.Channels != c.channels:
		return nil, fmt.Errorf("%w: %s reads images of %d channels, not %d: give --option data.channels=%d", models.ErrConfig, name, c.channels, of.Channels, c.channels)
	case c.longest.tokens > 0 && of.Image > c.longest.tokens:
		return nil, fmt.Errorf("%w: %s: --length is %d, and field %q of its config.json allows %d: give at most that", models.ErrConfig, name, of.Image, c.longest.field, c.longest.tokens)
	}
	return c.build(name, of)
}

// sized returns a language model's sizes for a configuration.
func (c *config) sized(of models.Config) models.Language {
	l := c.language
	l.Batch, l.Length, l.DType = of.Batch, of.Image, of.DType
	return l
}

// ofDecoder makes the config of a decoder.
func ofDecoder(l models.Language, model func(name string, l models.Language) (*models.Model, error)) *config {
	c := &config{language: l, classes: l.Vocabulary}
	c.build = func(name string, of models.Config) (*models.Model, error) { return model(name, c.sized(of)) }
	return c
}
