//go:build cgo

package train_test

import (
	"errors"
	"strings"
	"testing"

	"plimsoll/executor/train"
	_ "plimsoll/models/torchexport" // reads archives
)

// A model that classifies texts is not trained with the next token as the label of each.
func TestClassifiersOfTextsHaveNoNextTokens(t *testing.T) {
	t.Parallel()
	_, err := train.Open(train.Spec{Model: "../../models/torchexport/testdata/bert_class/model.pt2", Data: "opticks"})
	if !errors.Is(err, train.ErrSpec) || !strings.Contains(err.Error(), "gives a text a class, and data sets of text have the next token of each") {
		t.Error(err)
	}
}
