package models

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"plimsoll/kernels"
)

// Config is what a model can be built for.
type Config struct {
	Batch    int
	Image    int // height and width in pixels
	Channels int // 0 means 3
	Classes  int
	DType    kernels.DType // of the activations: float32 or bfloat16; images and parameters are float32
}

// Known is a model of the zoo.
type Known struct {
	Name    string
	Summary string
	build   func(name string, c Config) (*Model, error)
}

// Zoo returns the known models.
func Zoo() []Known {
	return []Known{
		{"resnet18", "ResNet-18 (He et al. 2015, table 1), as torchvision", imageNet(basicBlock, 2, 2, 2, 2)},
		{"resnet34", "ResNet-34 (He et al. 2015, table 1), as torchvision", imageNet(basicBlock, 3, 4, 6, 3)},
		{"resnet50", "ResNet-50 (He et al. 2015, table 1), as torchvision", imageNet(bottleneck, 3, 4, 6, 3)},
		{"resnet101", "ResNet-101 (He et al. 2015, table 1), as torchvision", imageNet(bottleneck, 3, 4, 23, 3)},
		{"resnet152", "ResNet-152 (He et al. 2015, table 1), as torchvision", imageNet(bottleneck, 3, 8, 36, 3)},
		{"resnet20", "ResNet-20 for small images (He et al. 2015, section 4.2)", small(20)},
		{"resnet32", "ResNet-32 for small images (He et al. 2015, section 4.2)", small(32)},
		{"resnet56", "ResNet-56 for small images (He et al. 2015, section 4.2)", small(56)},
		{"resnet110", "ResNet-110 for small images (He et al. 2015, section 4.2)", small(110)},
		{"resnet164", "pre-activation ResNet-164 for small images (He et al. 2016)", preActivation(164)},
		{"resnet1001", "pre-activation ResNet-1001 for small images (He et al. 2016)", preActivation(1001)},
		{"densenet121", "DenseNet-121 (Huang et al. 2017, table 1), as torchvision", dense(32, 64, 6, 12, 24, 16)},
		{"densenet161", "DenseNet-161 (Huang et al. 2017), as torchvision", dense(48, 96, 6, 12, 36, 24)},
		{"densenet169", "DenseNet-169 (Huang et al. 2017, table 1), as torchvision", dense(32, 64, 6, 12, 32, 32)},
		{"densenet201", "DenseNet-201 (Huang et al. 2017, table 1), as torchvision", dense(32, 64, 6, 12, 48, 32)},
		{"vgg16", "VGG-16 (Simonyan and Zisserman 2015, table 1, column D), as torchvision", vgg16(false)},
		{"vgg16_bn", "VGG-16 with BatchNorm, as torchvision", vgg16(true)},
		{"inception_v3", "Inception v3 (Szegedy et al. 2016, table 1), as torchvision without the auxiliary classifier", inception3},
		{"unet", "U-Net (B, C), default (2, 16), others are unet-B-C (Kim et al. 2020, torchgpipe, section 4.2.2)", unet(2, 16)},
		{"amoebanet", "AmoebaNet-D (L, F), default (3, 32), others are amoebanet-L-F (Real et al. 2018; GPipe, table 1)", amoebaNet(3, 32)},
		{"mlp", "four linear layers with ReLU and dropout", mlp},
		{"tiny", "five small layers that use most ops", tiny},
	}
}

// mostSize bounds the numbers of a family.
const mostSize = 1 << 14

// families are the models that two numbers scale: unet-6-72 is the U-Net of (6, 72).
var families = map[string]func(a, b int) func(string, Config) (*Model, error){"unet": unet, "amoebanet": amoebaNet}

// scaled returns the model of a family that a name stands for, nil for any other name.
func scaled(name string) func(string, Config) (*Model, error) {
	parts := strings.Split(name, "-")
	family := families[parts[0]]
	if family == nil || len(parts) != 3 {
		return nil
	}
	a, errA := strconv.Atoi(parts[1])
	b, errB := strconv.Atoi(parts[2])
	if errA != nil || errB != nil {
		return nil
	}
	return family(a, b)
}

// Pairs returns the known models of pairs of images: two branches, which meet in one loss.
func Pairs() []Known {
	return []Known{
		{"siamese", "two branches of nine convolutions with the same weights (Han et al. 2015, figure 1b)", siamese(3, 3, 3)},
	}
}

// OfPairs reports whether a sample of a known model is a pair of images.
func OfPairs(name string) bool {
	return slices.ContainsFunc(Pairs(), func(k Known) bool { return k.Name == name })
}

// New builds a model of the zoo, or of pairs.
func New(name string, c Config) (*Model, error) {
	build, names := scaled(name), []string{"unet-B-C", "amoebanet-L-F"}
	for _, k := range append(Zoo(), Pairs()...) {
		if k.Name == name {
			build = k.build
		}
		names = append(names, k.Name)
	}
	if build != nil {
		if err := c.complete(); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return build(name, c)
	}
	return nil, fmt.Errorf("%w %q: known are %s", ErrUnknown, name, strings.Join(names, ", "))
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
	if !c.DType.Float() {
		return fmt.Errorf("%w: dtype is %v, want float32 or bfloat16", ErrConfig, c.DType)
	}
	return nil
}

func (c Config) builder(name string) *Builder {
	b := NewBuilder(name, kernels.F32(c.Batch, c.Image, c.Image, c.Channels), c.Classes)
	b.DType = c.DType
	return b
}
