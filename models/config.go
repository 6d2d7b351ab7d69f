package models

import (
	"fmt"

	"plimsoll/kernels"
)

// Config gives the batch, the images and the classes that a model is built for.
type Config struct {
	Batch    int
	Image    int           // height and width in pixels; of text the tokens of a sample
	Channels int           // 0 means 3; text has none
	Classes  int           // of text the vocabulary
	DType    kernels.DType // of the activations: float32, its TF32, or bfloat16; images and parameters are float32
	Loss     kernels.Criterion
	// Freeze names weights that are not trained, in patterns with commas between them. "" freezes none.
	Freeze string
	LoRA   LoRA
}

func (c *Config) complete() error {
	if c.Channels == 0 {
		c.Channels = 3
	}
	for _, f := range []struct {
		name  string
		value int
	}{{"batch", c.Batch}, {"image", c.Image}, {"channels", c.Channels}, {"classes", c.Classes}} {
		if f.value < 1 {
			return fmt.Errorf("%w: %s is %d, want at least 1", ErrConfig, f.name, f.value)
		}
	}
	if !c.DType.Stored().Float() {
		return fmt.Errorf("%w: dtype is %v, want float32, tf32 or bfloat16", ErrConfig, c.DType)
	}
	return nil
}

func (c Config) builder(name string) *Builder {
	b := NewBuilder(name, kernels.F32(c.Batch, c.Image, c.Image, c.Channels), c.Classes)
	b.DType = c.DType
	return b
}

// Known is a model that New knows by its name.
type Known struct {
	Name    string
	Summary string
	Source  string // the paper that describes it; "" for our own
	Image   int    // the height and width of the images that it is meant for, in pixels; of text the tokens of a sample
	Classes int    // likewise
	// Build makes it, with a Builder. The config is complete; it is called anew for every batch, image and number of classes.
	Build func(name string, c Config) (*Model, error)
}

// Config returns the model's published configuration, with a batch of one image.
func (k Known) Config() Config { return Config{Batch: 1, Image: k.Image, Classes: k.Classes} }

// mostSize bounds the numbers of a family.
const mostSize = 1 << 14
