package executor

import (
	"testing"

	"plimsoll/kernels"
	"plimsoll/kernels/ref"
)

// A chain that was measured before updates were, or with another optimizer, gets the sizes of the workload's.
func TestUpdatesAreSizedForTheOptimizer(t *testing.T) {
	t.Parallel()
	r := compiled(t, fourImages(t, "resnet20"))
	old := r.Model.Footprints(r.Layers)
	old.Layers[1].Update.StateBytes, old.Layers[1].Update.DeviceS = 1, 2
	of := r.SizeUpdates(old)
	if of.Layers[1].Update.StateBytes != r.Chain().Layers[1].Update.StateBytes || of.Layers[1].Update.DeviceS != 2 || old.Layers[1].Update.StateBytes != 1 {
		t.Errorf("%+v, before %+v", of.Layers[1].Update, old.Layers[1].Update)
	}
	w, err := Compile(fourImages(t, "resnet20"), ref.New(nil), kernels.AdamW{})
	must(t, err)
	for i, l := range w.Chain().Layers {
		if l.Update.StateBytes != 2*r.Chain().Layers[i].Update.StateBytes {
			t.Errorf("%s has %d bytes of AdamW's state, %d of momentum", l.Name, l.Update.StateBytes, r.Chain().Layers[i].Update.StateBytes)
		}
	}
}
