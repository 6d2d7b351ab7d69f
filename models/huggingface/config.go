package huggingface

import (
	"fmt"

	"plimsoll/models"
)

// normalLength is the tokens of a sample where a model can have more.
const normalLength = 64

// config holds the model of a config.json, and builds it.
type config struct {
	language models.Language // for no batch yet
	build    func(name string, c models.Language) (*models.Model, error)
	longest  longest
}

// longest is the most tokens that a sample may have, and the field that says so; 0: there is no limit.
type longest struct {
	tokens int
	field  string
}

func (c *config) length() int {
	if n := c.longest.tokens; n > 0 {
		return min(n, normalLength)
	}
	return normalLength
}

// model builds the model for a configuration.
func (c *config) model(name string, of models.Config) (*models.Model, error) {
	l := c.language
	switch {
	case of.Classes != l.Vocabulary:
		return nil, fmt.Errorf("%w: %s has a vocabulary of %d tokens, not %d: leave --classes out", models.ErrConfig, name, l.Vocabulary, of.Classes)
	case c.longest.tokens > 0 && of.Image > c.longest.tokens:
		return nil, fmt.Errorf("%w: %s: --length is %d, and field %q of its config.json allows %d: give at most that", models.ErrConfig, name, of.Image, c.longest.field, c.longest.tokens)
	}
	l.Batch, l.Length, l.DType = of.Batch, of.Image, of.DType
	return c.build(name, l)
}
