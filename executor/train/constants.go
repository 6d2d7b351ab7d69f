package train

import (
	"path/filepath"
	"strconv"

	"plimsoll/executor/checkpoint"
	"plimsoll/models"
)

// constants are what the file of trained weights says of a language model besides its tensors.
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

// SavedConstants returns the values of a language model's constants that weights were trained with, by their names, as far as they are
// told: weights is what Predictor takes, a file of weights that tells them, or a checkpoint, whose model's name does. Errors: those of
// checkpoint.Import.
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
	if err != nil { // a model that others have registered
		return all, nil
	}
	for _, c := range named {
		all[c.Name] = c.Value
	}
	return all, nil
}

// weightsIn returns the file of weights that a path stands for: itself, or that of a run that has ended in the folder there.
func weightsIn(path string) string {
	if final := filepath.Join(path, FinalWeights); isFile(final) {
		return final
	}
	return path
}
