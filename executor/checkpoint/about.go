package checkpoint

import "errors"

// About returns the metadata of a file of weights, or of the first shard of a checkpoint. Errors: those of Import.
func About(path string) (about map[string]string, err error) {
	files, err := openFiles(path)
	if err != nil || len(files) == 0 {
		return nil, err
	}
	return files[0].Metadata(), errors.Join(closeFiles(files))
}
