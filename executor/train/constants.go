package train

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"plimsoll/executor/checkpoint"
	"plimsoll/models"
)

// Names in a run's folder.
const (
	FinalWeights  = "final.safetensors" // the weights that the run ended with
	FinalFolder   = "final"             // in place of FinalWeights, for a model of a folder: a folder of that kind
	FolderWeights = "model.safetensors" // its weights
	Checkpoints   = "checkpoints"
)

// constants returns the constants of a language model, as metadata of its file of weights; nil for other models.
func (j *Job) constants() map[string]string {
	if j.Tokens() == 0 {
		return nil
	}
	all := map[string]string{}
	for _, c := range j.Work.Model.Constants() {
		all[c.Name] = c.Text()
	}
	return all
}

// transposed reports whether files have matrices of a model's linear layers in, out.
func transposed(m *models.Model) bool {
	return slices.ContainsFunc(m.Params(), func(p models.Parameter) bool {
		return slices.ContainsFunc(p.Parts, func(x models.Part) bool { return x.Transposed })
	})
}

// SavedConstants returns the constants that weights were trained with, by name, if the file has them. Weights is a path as
// Predictor takes it; checkpoints tell constants by the name of their model. Errors: those of checkpoint.Import.
func SavedConstants(weights string) (map[string]float64, error) {
	about, err := checkpoint.About(weightsIn(weights))
	if err != nil {
		return nil, err
	}
	all := map[string]float64{}
	for name, text := range about {
		if v, err := strconv.ParseFloat(text, 32); err == nil && v > 0 {
			all[name] = v
		}
	}
	named, err := models.Constants(about["model"])
	if err != nil {
		return all, nil //nolint:nilerr // others have registered the model
	}
	for _, c := range named {
		all[c.Name] = c.Value
	}
	return all, nil
}

// weightsIn returns the file with the final weights if path is the folder of a run, else path.
func weightsIn(path string) string {
	for _, final := range []string{filepath.Join(path, FinalWeights), filepath.Join(path, FinalFolder, FolderWeights)} {
		if isFile(final) {
			return final
		}
	}
	return path
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
