package kernels

// Kinds returns the kinds of all ops.
func Kinds() (all []string) {
	for _, op := range []Op{
		Conv2D{}, BatchNorm{}, ReLU{}, Add{}, Concat{}, MaxPool{}, AvgPool{}, GlobalAvgPool{}, AdaptiveAvgPool{}, Linear{}, Dropout{},
		SoftmaxCrossEntropy{}, Cast{}, Embedding{}, LayerNorm{}, RMSNorm{}, GELU{}, SiLU{}, Multiply{}, Rotary{}, Attention{}, Pack{}, Slice{}, Upsample{},
		Rearrange{}, Bias{}, Scale{}, AddRows{}, Prepend{}, Gate{}, Pointwise{}, Affine{}, Pad{}, Resize{}, GroupNorm{}, ConvTranspose2D{}, ElementLoss{},
	} {
		all = append(all, op.Kind())
	}
	return all
}
