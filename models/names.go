package models

import "strings"

// The endings of language models' names: whether the last layer's weight is the embedding's, where that is not as published.
const (
	tiedSuffix   = "-tied"
	untiedSuffix = "-untied"
)

// tied reports whether the model of a name is tied, if it is as published.
func tied(name string, published bool) bool {
	name, _ = cutConstants(name)
	return strings.HasSuffix(name, tiedSuffix) || published && !strings.HasSuffix(name, untiedSuffix)
}

// base returns the name of a language model without its constants and what says whether it is tied.
func base(name string) string {
	name, _ = cutConstants(name)
	for _, suffix := range []string{tiedSuffix, untiedSuffix} {
		if cut, ok := strings.CutSuffix(name, suffix); ok && (strings.HasPrefix(cut, "gpt2") || strings.Contains(cut, "llama")) {
			return cut
		}
	}
	return name
}
