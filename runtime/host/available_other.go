//go:build !linux

package host

import "errors"

func halfOfAvailable() (int64, error) {
	return 0, errors.New("available memory is not known on this system: state the memory limit")
}
