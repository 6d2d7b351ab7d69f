package spread

import (
	"encoding/csv"
	"errors"
	"os"
)

// columns is how many a row of a planned grid has: the four of its point, and three of what was found there.
const columns = 7

// Read returns the rows of a planned grid. Errors: those of the file, and of rows with other columns.
func Read(path string) ([][]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	in := csv.NewReader(f)
	in.FieldsPerRecord = columns
	rows, err := in.ReadAll()
	return rows, errors.Join(err, f.Close())
}

// Append calls do with the rows of a file, none where it is not there, and with what writes further rows behind them.
func Append(path string, do func(rows [][]string, out *csv.Writer) error) error {
	rows, err := Read(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(do(rows, csv.NewWriter(f)), f.Close())
}
