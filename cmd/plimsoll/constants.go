package main

import (
	"fmt"
	"strings"

	"plimsoll/executor/train"
	"plimsoll/models"
)

// takeConstants gives a language model the constants that its weights were trained with, where its name gives none, and says which ones
// are assumed or are not those of the file. A name that gives some is written in one way.
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
	if err != nil { // loading the weights says what is wrong with them
		return nil
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
		f.note(fmt.Sprintf("%s does not say all that its model computes with: assumed is %s; its config.json tells, and the model's name gives others, as in -m %s,%s",
			f.start, strings.Join(assumed, ", "), f.model, strings.Join(assumed, ",")))
	}
	return nil
}
