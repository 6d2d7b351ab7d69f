package main

import (
	"fmt"
	"strings"

	"plimsoll/executor/train"
	"plimsoll/models"
)

// takeConstants gives a language model the constants of the file that it begins with, unless its name gives them. It notes constants that
// are assumed or differ from the file's, and writes the model's name in one form.
func (f *jobFlags) takeConstants() error {
	constants, err := models.Constants(f.model)
	if err != nil {
		return err
	}
	for _, c := range constants {
		if c.Given {
			f.model = models.WithConstant(f.model, c)
		}
	}
	if f.start == "" || constants == nil {
		return nil
	}
	saved, err := train.SavedConstants(f.start)
	if err != nil {
		return nil //nolint:nilerr // the error comes again when the weights are loaded
	}
	var assumed []string
	for _, c := range constants {
		was := models.Constant{Name: c.Name, Value: saved[c.Name]}
		switch {
		case was.Value == 0 && !c.Given:
			assumed = append(assumed, c.Name+"="+c.Text())
		case was.Value == 0 || was.Text() == c.Text():
		case c.Given:
			f.note(fmt.Sprintf("%s is %s here, and was %s when %s was trained", c.Name, c.Text(), was.Text(), f.start))
		default:
			f.model = models.WithConstant(f.model, was)
			f.note(fmt.Sprintf("%s is %s, as %s says", c.Name, was.Text(), f.start))
		}
	}
	if assumed != nil {
		f.note(fmt.Sprintf("%s does not tell every constant of its model: %s are assumed. Its config.json has them, and the model's name gives others, as in -m %s,%s",
			f.start, strings.Join(assumed, ", "), f.model, strings.Join(assumed, ",")))
	}
	return nil
}
