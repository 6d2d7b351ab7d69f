package models

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"plimsoll/internal/names"
	"plimsoll/internal/units"
)

// registered are the models that others have made known.
var registered []Known

// Register makes a model of one's own known, to New and to all that take a model's name; call it from an init function. Its name is in
// the checkpoints of its runs. A name that is taken, or no Build, is a bug of the caller: Register panics.
func Register(k Known) {
	if k.Build == nil || slices.Contains(Names(), k.Name) {
		panic(fmt.Sprintf("BUG: model %q has no Build, or another model has its name", k.Name))
	}
	registered = append(registered, k)
}

// Zoo returns the known models, those that are registered last.
func Zoo() []Known {
	const residual, small32, dense2017 = "He et al. 2015, table 1", "He et al. 2015, section 4.2", "Huang et al. 2017, table 1"
	return append([]Known{
		{"resnet18", "ResNet-18, as torchvision", residual, 224, 1000, imageNet(basicBlock, 2, 2, 2, 2)},
		{"resnet34", "ResNet-34, as torchvision", residual, 224, 1000, imageNet(basicBlock, 3, 4, 6, 3)},
		{"resnet50", "ResNet-50, as torchvision", residual, 224, 1000, imageNet(bottleneck, 3, 4, 6, 3)},
		{"resnet101", "ResNet-101, as torchvision", residual, 224, 1000, imageNet(bottleneck, 3, 4, 23, 3)},
		{"resnet152", "ResNet-152, as torchvision", residual, 224, 1000, imageNet(bottleneck, 3, 8, 36, 3)},
		{"resnet20", "ResNet-20 for small images", small32, 32, 10, small(20)},
		{"resnet32", "ResNet-32 for small images", small32, 32, 10, small(32)},
		{"resnet56", "ResNet-56 for small images", small32, 32, 10, small(56)},
		{"resnet110", "ResNet-110 for small images", small32, 32, 10, small(110)},
		{"resnet164", "pre-activation ResNet-164 for small images", "He et al. 2016", 32, 10, preActivation(164)},
		{"resnet1001", "pre-activation ResNet-1001 for small images", "He et al. 2016", 32, 10, preActivation(1001)},
		{"densenet121", "DenseNet-121, as torchvision", dense2017, 224, 1000, dense(32, 64, 6, 12, 24, 16)},
		{"densenet161", "DenseNet-161, as torchvision", "Huang et al. 2017", 224, 1000, dense(48, 96, 6, 12, 36, 24)},
		{"densenet169", "DenseNet-169, as torchvision", dense2017, 224, 1000, dense(32, 64, 6, 12, 32, 32)},
		{"densenet201", "DenseNet-201, as torchvision", dense2017, 224, 1000, dense(32, 64, 6, 12, 48, 32)},
		{"vgg16", "VGG-16, as torchvision", "Simonyan and Zisserman 2015, table 1, column D", 224, 1000, vgg16(false)},
		{"vgg16_bn", "VGG-16 with BatchNorm, as torchvision", "Simonyan and Zisserman 2015, table 1, column D", 224, 1000, vgg16(true)},
		{"inception_v3", "Inception v3, as torchvision without the auxiliary classifier", "Szegedy et al. 2016, table 1", 299, 1000, inception3},
		{"unet", "U-Net (2, 16); others are unet-B-C", "Kim et al. 2020, torchgpipe, section 4.2.2", 192, 10, unet(2, 16)},
		{"amoebanet", "AmoebaNet-D (3, 32); others are amoebanet-L-F", "Real et al. 2018; GPipe, table 1", 224, 1000, amoebaNet(3, 32)},
		{"mlp", "four linear layers with ReLU and dropout", "", 32, 10, mlp},
		{"tiny", "five small layers that use most ops", "", 32, 10, tiny},
	}, registered...)
}

// families are the models that numbers scale: unet-6-72 is the U-Net of (6, 72), gpt2-4-128 a GPT-2 of 4 blocks and 128 channels. All
// take two numbers, some more.
var families = map[string]family{
	"unet": pairOf(unet), "unetseg": pairOf(segmentingUnet), "amoebanet": pairOf(amoebaNet), "gpt2": pairOf(smallGPT2), "llama": {5, smallLlama},
}

// family is how many numbers at most scale its models, and how.
type family struct {
	most  int
	model func(sizes []int) func(string, Config) (*Model, error)
}

func pairOf(model func(a, b int) func(string, Config) (*Model, error)) family {
	return family{2, func(sizes []int) func(string, Config) (*Model, error) { return model(sizes[0], sizes[1]) }}
}

// scaled returns the model of a family that a name stands for, nil for any other name.
func scaled(name string) func(string, Config) (*Model, error) {
	parts := strings.Split(base(name), "-")
	f, sizes := families[parts[0]], []int{}
	for _, part := range parts[1:] {
		size, err := strconv.Atoi(part)
		if err != nil {
			return nil
		}
		sizes = append(sizes, size)
	}
	if len(sizes) < 2 || len(sizes) > f.most {
		return nil
	}
	return f.model(sizes)
}

// Segmenters returns the known models that give each pixel of an image a class.
func Segmenters() []Known {
	return []Known{
		{"unetseg", "U-Net (2, 16) that segments; others are unetseg-B-C", "Kim et al. 2020, torchgpipe, section 4.2.2", 64, 4, segmentingUnet(2, 16)},
	}
}

// Segments reports whether a known model, or one of a family, gives each pixel a class.
func Segments(name string) bool {
	return slices.ContainsFunc(Segmenters(), func(k Known) bool { return name == k.Name || strings.HasPrefix(name, k.Name+"-") })
}

// Pairs returns the known models of pairs of images: two branches, which meet in one loss.
func Pairs() []Known {
	return []Known{
		{"siamese", "two branches of nine convolutions with the same weights", "Han et al. 2015, figure 1b", 32, 2, siamese(3, 3, 3)},
	}
}

// OfPairs reports whether a sample of a known model is a pair of images.
func OfPairs(name string) bool {
	return slices.ContainsFunc(Pairs(), func(k Known) bool { return k.Name == name })
}

// Texts returns the known language models, which read tokens and predict the next one of each.
func Texts() []Known {
	const radford, touvron = "Radford et al. 2019, table 2", "Touvron et al. 2023, Llama 2, appendix A.2"
	return []Known{
		{"gpt2", "GPT-2 of 12 blocks and 768 channels; others are gpt2-B-C", radford, 1024, 50257, gpt2(12, 768)},
		{"gpt2-medium", "GPT-2 of 24 blocks and 1024 channels", radford, 1024, 50257, gpt2(24, 1024)},
		{"gpt2-large", "GPT-2 of 36 blocks and 1280 channels", radford, 1024, 50257, gpt2(36, 1280)},
		{"gpt2-xl", "GPT-2 of 48 blocks and 1600 channels", radford, 1024, 50257, gpt2(48, 1600)},
		{"tinyllama", "TinyLlama 1.1B; other Llamas are llama-B-C", "Zhang et al. 2024, table 1", 2048, 32000, llama(TinyLlama(1, 1))},
		{"llama2-7b", "Llama 2 7B", touvron, 4096, 32000, llama(Language{Width: 4096, Heads: 32, Hidden: 11008, Blocks: 32})},
		{"llama3-8b", "Llama 3 8B", "Grattafiori et al. 2024, table 3", 8192, 128256, llama(Language{
			Width: 4096, Heads: 32, KVHeads: 8, Hidden: 14336, Blocks: 32, RotaryBase: 500000,
		})},
	}
}

// OfText reports whether a sample of a model is a text.
func OfText(name string) bool {
	if f, is, _ := Open(name); is { // its errors are New's
		return f.Text
	}
	return slices.ContainsFunc(Texts(), func(k Known) bool { return k.Name == base(name) }) ||
		strings.HasPrefix(name, "gpt2-") || strings.HasPrefix(name, "llama-")
}

// AxesOf returns the axes of a sample of numbers, which a model of a file may read; 0 of images and texts.
func AxesOf(name string) int {
	f, _, _ := Open(name) // its errors are New's
	return f.Axes
}

// SampleSize holds the size of a model's sample: Image of images, Length of texts, Features of numbers F, Features and Length of numbers C,T.
type SampleSize struct {
	Image    int `json:"image,omitempty"`    // pixels, of each side
	Length   int `json:"length,omitempty"`   // tokens of a text, or T
	Features int `json:"features,omitempty"` // F, or C
}

// SizeOf returns the size of a sample of a model from Config.Image.
func SizeOf(name string, image int) SampleSize {
	f, _, _ := Open(name)
	switch {
	case f.Axes == 1:
		return SampleSize{Features: f.Channels}
	case f.Axes == 2:
		return SampleSize{Features: f.Channels, Length: image}
	case OfText(name):
		return SampleSize{Length: image}
	}
	return SampleSize{Image: image}
}

// OfImages reports whether samples are images.
func (s SampleSize) OfImages() bool { return s.Image > 0 }

// Describe returns a size as text: "224x224", "64 tokens", "13 numbers", "80x3000 numbers".
func (s SampleSize) Describe() string {
	switch {
	case s.Features > 0 && s.Length > 0:
		return fmt.Sprintf("%dx%d numbers", s.Features, s.Length)
	case s.Features > 0:
		return units.Count(s.Features, "number")
	case s.Length > 0:
		return units.Count(s.Length, "token")
	}
	return fmt.Sprintf("%dx%d", s.Image, s.Image)
}

// Samples returns a number of samples with their size as text: "32 images of 224x224", "32 samples of 64 tokens".
func (s SampleSize) Samples(n int) string {
	if !s.OfImages() {
		return units.Count(n, "sample") + " of " + s.Describe()
	}
	return units.Count(n, "image") + " of " + s.Describe()
}

// Untied returns the name of a language model without tied weights, "" of other models and files.
func Untied(name string) string {
	if !OfText(name) || isOfFile(name) {
		return ""
	}
	_, constants := cutConstants(name)
	return strings.Join(append([]string{base(name) + untiedSuffix}, constants...), ",")
}

// All returns all known models: of images, of their pixels, of pairs of images, of text.
func All() []Known { return slices.Concat(Zoo(), Segmenters(), Pairs(), Texts()) }

// lookup returns the function that New knows by a name, nil when it knows none.
func lookup(name string) (func(name string, c Config) (*Model, error), error) {
	if f, is, err := Open(name); is || err != nil {
		return f.Build, err
	}
	build := scaled(name)
	for _, k := range All() {
		if k.Name == name || k.Name == base(name) && OfText(name) {
			build = k.Build
		}
	}
	switch {
	case build != nil:
		return build, nil
	case holdsWeights(name):
		return nil, fmt.Errorf("%w: %s may have weights, but no graph of a model: write NAME.pt2 with torch.export.save, as docs/pytorch.md says",
			ErrUnknown, name)
	case isPath(name):
		return nil, fmt.Errorf("%w: %s is no file of a model: %swant a file of PyTorch's export, NAME%s, a folder of Hugging Face, or a model that plimsoll models lists",
			ErrUnknown, name, names.Hint(names.Closest(name, Names()), ""), strings.Join(slices.Sorted(maps.Keys(formats)), " or "))
	}
	return nil, names.Unknown(ErrUnknown, name, Names())
}

// Check returns the error of New for a name that no model has, or for a file that cannot be read.
func Check(name string) error {
	_, err := lookup(name)
	return err
}

// Names lists what New knows; unet-B-C, unetseg-B-C, amoebanet-L-F, gpt2-B-C and llama-B-C stand for all models of their families.
func Names() (all []string) {
	for _, k := range All() {
		all = append(all, k.Name)
	}
	return append(all, "unet-B-C", "unetseg-B-C", "amoebanet-L-F", "gpt2-B-C", "llama-B-C")
}

// New builds a known model, one of a family, or that of a file (see Open). Errors: ErrUnknown, ErrConfig, those of the file.
func New(name string, c Config) (*Model, error) {
	build, err := lookup(name)
	if err != nil {
		return nil, err
	}
	if err := c.complete(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	m, err := build(name, c)
	if err != nil {
		return nil, err
	}
	if err := m.endWith(c.Loss); err != nil {
		return nil, err
	}
	return m, m.train(c)
}

// train makes those parameters train that a config says.
func (m *Model) train(c Config) error {
	switch {
	case c.Freeze != "" && c.LoRA.Rank > 0:
		return fmt.Errorf("%w: --lora freezes all weights but its adapters: leave --freeze out", ErrConfig)
	case c.LoRA.Rank > 0:
		return m.adapt(c.LoRA)
	case c.Freeze != "":
		return m.freeze(c.Freeze)
	}
	return m.checkTrains(m.Name)
}

// Constants returns the constants of a known language model, in a fixed order; none of other models and of files, whose ops have their
// own. Errors: those of New.
func Constants(name string) ([]Constant, error) {
	if !OfText(name) || isOfFile(name) {
		return nil, nil
	}
	m, err := New(name, Config{Batch: 1, Image: 1, Classes: 1})
	if err != nil {
		return nil, err
	}
	all := m.Constants()
	for i := range all {
		all[i].Given = strings.Contains(name, ","+all[i].Name+"=") || givenBySize(name, all[i].Name)
	}
	return all, nil
}

// givenBySize reports whether the heads of a Llama are among the numbers of its name, llama-B-C-H-K.
func givenBySize(name, constant string) bool {
	sizes := strings.Count(base(name), "-")
	return strings.HasPrefix(name, "llama-") && (constant == llamaHeads && sizes > 2 || constant == llamaKVHeads && sizes > 3)
}
