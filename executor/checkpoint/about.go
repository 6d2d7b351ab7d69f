package checkpoint

import "errors"

// About returns the free text of a file of weights, of a checkpoint in shards that of the first one: what Export was given, or the fields
// of a Meta. Errors: those of Import.
func About(path string) (about map[string]string, err error) {
	files, err := openFiles(path)
	if err != nil || len(files) == 0 {
		return nil, err
	}
	return files[0].Metadata(), errors.Join(closeFiles(files))
}
