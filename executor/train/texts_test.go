//go:build cgo

package train_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"plimsoll/executor/train"
	"plimsoll/kernels"
	"plimsoll/models"
	"plimsoll/models/data"
	_ "plimsoll/models/torchexport" // reads archives
)

const classifier = "../../models/torchexport/testdata/bert_class/model.pt2"

// A model that classifies texts is trained with texts that have a class, and no other model is.
func TestClassesOfTexts(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "texts.jsonl")
	var lines strings.Builder
	for i := range 40 { // class 1 has the byte 17, class 0 has 5
		fmt.Fprintf(&lines, `{"text": "\u00%02x\u0003\u0002", "label": %d}`+"\n", 5+12*(i%2), i%2)
	}
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ model, data, words string }{
		{classifier, "opticks", "gives a text a class, and data set opticks has the next token of each: give texts with labels"},
		{"gpt2-1-16", "jsonl:" + file, "has a label for each text, and --model gpt2-1-16 gives logits to each token"},
	} {
		if _, err := train.Open(train.Spec{Update: kernels.SGD{}, Model: c.model, Data: c.data, Config: models.Config{Image: 12, Classes: 5, Batch: 4}}); !errors.Is(err, train.ErrSpec) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s on %s: %v, want %q", c.model, c.data, err, c.words)
		}
	}
	j, err := train.Open(train.Spec{Devices: "cpu", Update: kernels.SGD{}, Model: classifier, Data: "jsonl:" + file, Config: models.Config{Image: 12, Classes: 5, Batch: 4}, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if n := j.Work.Model.Labels.Elements(); n != 4 || data.Labels(j.Set) != 1 || j.Held(0.5, 1, nil, 4) != "100.00% of 4 held-out samples" {
		t.Errorf("%d labels of a batch, %s", n, j.Held(0.5, 1, nil, 4))
	}
}

// A spec without an optimizer is refused.
func TestSpecsHaveOptimizers(t *testing.T) {
	t.Parallel()
	if _, err := train.Open(train.Spec{Devices: "cpu", Model: "tiny", Data: "digits", Config: models.Config{Image: 16, Batch: 4}}); !errors.Is(err, train.ErrSpec) {
		t.Error(err)
	}
}
