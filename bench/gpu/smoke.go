package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"plimsoll/internal/units"
	"plimsoll/kernels"
	"plimsoll/kernels/cuda/nvidia"
	"plimsoll/models"
	"plimsoll/runtime"
)

// smokeRow is one thing that all other parts need.
type smokeRow struct {
	Check   string  `json:"check"`
	State   string  `json:"state"` // green, red or skipped
	Seconds float64 `json:"s"`
	Text    string  `json:"text"` // of what was found; red: what to mend
}

// errSkip marks what a check does without on a device.
var errSkip = errors.New("skipped")

// smokeCheck tries one thing and returns a line about it. mend says what to do where it fails.
type smokeCheck struct {
	name, mend string
	try        func(*smoke) (string, error)
}

// smoke tries what all other parts need.
type smoke struct{ *part }

// checks returns all checks. Each opens the device anew, so that one that fails leaves nothing to the next.
func (s *smoke) checks() []smokeCheck {
	const mend = "run the part runtime, whose tests look at this alone"
	all := []smokeCheck{{"device", "install NVIDIA's driver, or name another device in DEVICE", (*smoke).tryDevice}}
	for _, name := range s.modules() {
		all = append(all, smokeCheck{"module " + name, "the driver does not take this PTX: read its log, and update the driver to CUDA 12.0 or newer",
			func(s *smoke) (string, error) { return s.tryModule(name) }})
	}
	all = append(all,
		smokeCheck{"steps", "kernels compute wrongly: run the part kernels", (*smoke).trySteps},
		smokeCheck{"graph", mend, (*smoke).tryGraph},
		smokeCheck{"streams", mend, (*smoke).tryStreams},
		smokeCheck{"cublas", "install cuBLAS again, or give --debug vendor=refuse", func(s *smoke) (string, error) { return s.tryVendor("cublas") }},
		smokeCheck{"cudnn", "install cuDNN again, or give --debug vendor=refuse", func(s *smoke) (string, error) { return s.tryVendor("cudnn") }})
	if os.Getenv("PLIMSOLL_CUDA_WGMMA") == "1" && slices.ContainsFunc(all, func(c smokeCheck) bool { return c.name == "module wgmma" }) {
		all = append(all, smokeCheck{"wgmma", "report it, and leave PLIMSOLL_CUDA_WGMMA unset", (*smoke).tryWarpgroups})
	}
	return all
}

// measureSmoke tries everything that the other parts need, in at most a minute, and says go, or what to mend.
func measureSmoke(ctx context.Context, p *part) error {
	s := &smoke{p}
	p.vendor = "refuse" // until their own checks
	rows, mend := []smokeRow{}, []string{}
	p.printf("| check | state | time | |\n|---|---|---|---|\n")
	for _, c := range s.checks() {
		if err := ctx.Err(); err != nil {
			return err
		}
		row := s.try(c)
		p.printf("| %s | %s | %.2f s | %s |\n", row.Check, row.State, row.Seconds, strings.ReplaceAll(row.Text, "|", "/"))
		if rows = append(rows, row); row.State == red {
			mend = append(mend, row.Check+": "+row.Text)
		}
		p.Summary = fmt.Sprintf("%d checks, the last one %s", len(rows), row.Check)
		if err := p.save(rows); err != nil {
			return err
		}
	}
	if len(mend) > 0 {
		p.printf("\nMend: %s.\n", strings.Join(mend, "; "))
		return cmp.Or(p.save(rows), fmt.Errorf("mend: %s", strings.Join(mend, "; ")))
	}
	p.Summary = "go: " + goText(rows)
	p.printf("\n%s.\n", p.Summary)
	return p.save(rows)
}

// goText sums up checks that are not red.
func goText(rows []smokeRow) string {
	modules, seconds, without := 0, 0.0, ""
	for _, row := range rows {
		if strings.HasPrefix(row.Check, "module ") {
			modules, seconds = modules+1, seconds+row.Seconds
		}
		if row.State == skipped {
			without += ", without " + row.Check
		}
	}
	return fmt.Sprintf("%d checks, %d modules compiled in %.1f s%s", len(rows), modules, seconds, without)
}

// try makes a row of a check.
func (s *smoke) try(c smokeCheck) smokeRow {
	begin := time.Now()
	text, err := c.try(s)
	row := smokeRow{Check: c.name, State: green, Seconds: time.Since(begin).Seconds(), Text: text}
	switch {
	case errors.Is(err, errSkip) || errors.Is(err, nvidia.ErrMissing):
		row.State, row.Text = skipped, strings.TrimPrefix(err.Error(), errSkip.Error()+": ")
	case err != nil:
		row.State, row.Text = red, fmt.Sprintf("%v (%s)", err, c.mend)
	}
	return row
}

func (s *smoke) tryDevice() (string, error) {
	e := s.Environment
	return fmt.Sprintf("%s, where the driver has %s; %s of memory; %s", e.Name, units.Count(count(), "GPU"), units.Bytes(e.Memory), e.line()), nil
}

// moduleLibrary is a library whose kernels a driver compiles when it loads them.
type moduleLibrary interface {
	Modules() []string
	LoadModule(name string) error
}

// modules lists the modules of the device's kernels; none where nothing is compiled, or the device does not open.
func (s *smoke) modules() []string {
	t, err := s.target()
	if err != nil {
		return nil
	}
	defer func() { _ = t.Device.Close() }() // the next check opens it again, and says why it cannot
	if lib, ok := t.Library.(moduleLibrary); ok {
		return lib.Modules()
	}
	return nil
}

// tryModule lets the driver compile a module, or load it from its cache.
func (s *smoke) tryModule(name string) (string, error) {
	t, err := s.target()
	if err != nil {
		return "", err
	}
	err = t.Library.(moduleLibrary).LoadModule(name)
	return "compiled, or taken from the driver's cache", errors.Join(err, t.Device.Close())
}

// trySteps compares the losses of each type with the CPU's, by our kernels.
func (s *smoke) trySteps() (string, error) {
	name, config := "resnet20", models.Config{Batch: 8, Image: 32, Classes: 10}
	if s.tiny {
		name, config = "tiny", models.Config{Batch: 4, Image: 12, Classes: 5}
	}
	rows, err := s.compareSteps(name, config)
	if err != nil {
		return "", err
	}
	losses, wrong := []string{}, []string{}
	for _, row := range rows {
		text := fmt.Sprintf("%s step %d: loss %.6g, the CPU's %.6g", row.DType, row.Step, row.Loss, row.Reference)
		if losses = append(losses, text); !row.Right {
			wrong = append(wrong, text)
		}
	}
	if len(wrong) > 0 {
		return "", fmt.Errorf("%w: %s", errWrong, strings.Join(wrong, "; "))
	}
	return strings.Join(losses, "; "), nil
}

// provingLibrary is a library that can let an algorithm compute a call and compare the result.
type provingLibrary interface {
	Prove(call kernels.Call, by string) error
}

// tryWarpgroups lets wgmma compute every pass of a convolution.
func (s *smoke) tryWarpgroups() (string, error) {
	t, err := s.target()
	if err != nil {
		return "", err
	}
	call := kernels.Call{Op: kernels.Conv2D{Out: 264, KernelH: 3, KernelW: 3, PadH: 1, PadW: 1}, In: []kernels.Desc{kernels.F32(4, 16, 16, 72).As(kernels.BFloat16)}}
	for _, call.Pass = range []kernels.Pass{kernels.Forward, kernels.BackwardInput, kernels.BackwardParams} {
		if err == nil {
			err = t.Library.(provingLibrary).Prove(call, "ours, wgmma")
		}
	}
	return "a convolution in bfloat16 and its gradients agree with naive sums", errors.Join(err, t.Device.Close())
}

// tryVendor lets a vendor's library compute a convolution in each type.
func (s *smoke) tryVendor(by string) (string, error) {
	s.vendor = "prefer"
	t, err := s.target()
	if err != nil {
		return "", err
	}
	lib, ok := t.Library.(provingLibrary)
	if !ok {
		return "", errors.Join(fmt.Errorf("%w: %s uses no vendor's library", errSkip, t.Library.Name()), t.Device.Close())
	}
	types := []string{}
	for _, d := range []kernels.DType{kernels.Float32, kernels.BFloat16} {
		if err == nil {
			call := kernels.Call{Op: kernels.Conv2D{Out: 64, KernelH: 1, KernelW: 1}, In: []kernels.Desc{kernels.F32(4, 16, 16, 64).As(d)}}
			err = lib.Prove(call, by)
			types = append(types, d.String())
		}
	}
	return fmt.Sprintf("%s; a convolution in %s agrees with naive sums", t.Library.Name(), strings.Join(types, " and ")), errors.Join(err, t.Device.Close())
}

// smokeBytes is the size of what checks copy.
const smokeBytes = 1 << 16

// withRig runs do with memory for a few tensors, and host space for two.
func (s *smoke) withRig(do func(*rig) (string, error)) (string, error) {
	r, err := s.rig(1<<25, 2*smokeBytes)
	if err != nil {
		return "", err
	}
	text, err := do(r)
	return text, errors.Join(err, r.close())
}

// tryGraph repeats a ReLU as a graph that waits for an event recorded outside, and records one that is waited for outside.
func (s *smoke) tryGraph() (string, error) {
	return s.withRig(func(r *rig) (string, error) {
		device, ok := r.Device.(runtime.Grapher)
		if !ok {
			return "", fmt.Errorf("%w: the device repeats nothing as a graph", errSkip)
		}
		relu, err := r.place(kernels.Call{Op: kernels.ReLU{}, In: []kernels.Desc{kernels.F32(smokeBytes / 4)}}, runtime.Span{Bytes: 1 << 24})
		if err != nil {
			return "", err
		}
		copies, err := r.Device.NewStream("copies")
		if err != nil {
			return "", err
		}
		uploaded, computed := r.start[0], r.end[0]
		graph, err := device.Capture(r.stream, func() error {
			return cmp.Or(r.stream.Wait(uploaded), relu.issue(), r.stream.Record(computed))
		})
		if err != nil {
			return "", err
		}
		for round := range byte(3) {
			if err := r.replay(graph, relu, copies, round); err != nil {
				return "", fmt.Errorf("launch %d: %w", round+1, err)
			}
		}
		return "3 launches, each behind an event from outside and before a wait outside", nil
	})
}

// replay uploads images of one number, launches the graph, downloads what it computes, and compares.
func (r *rig) replay(graph runtime.Launch, relu *placed, copies runtime.Stream, round byte) error {
	from, to := r.host[:smokeBytes], r.host[smokeBytes:]
	for i := range from {
		from[i] = [4]byte{round, 0, 0x80, 0x3f}[i%4] // a little more than 1, which a ReLU keeps
	}
	clear(to)
	host := func(at int64) runtime.Span { return runtime.Span{Space: runtime.Host, Offset: at, Bytes: smokeBytes} }
	err := cmp.Or(
		copies.Copy(relu.operands.X[0], host(0)), copies.Record(r.start[0]),
		r.stream.Launch(graph),
		copies.Wait(r.end[0]), copies.Copy(host(smokeBytes), relu.operands.Y), copies.Synchronize(), r.stream.Synchronize())
	if err == nil && !bytes.Equal(from, to) {
		err = errors.New("the graph did not wait for what was uploaded, or was not waited for")
	}
	return err
}

// tryStreams copies in both directions on one stream while a product is computed on another, and compares both results with those of
// the same work alone.
func (s *smoke) tryStreams() (string, error) {
	return s.withRig(func(r *rig) (string, error) {
		matrix := 512
		if s.tiny {
			matrix = 32
		}
		product, err := r.place(kernels.Call{Op: kernels.Linear{Out: matrix}, In: []kernels.Desc{kernels.F32(matrix, matrix)}}, runtime.Span{Bytes: 1 << 24})
		if err != nil {
			return "", err
		}
		if err := r.fill(1 << 24); err != nil {
			return "", err
		}
		alone, err := r.results(product)
		if err != nil {
			return "", err
		}
		copies, err := r.Device.NewStream("copies")
		if err != nil {
			return "", err
		}
		overlap, err := r.copyBeside(product, copies)
		if err != nil {
			return "", err
		}
		beside, err := r.download(product.operands.Y)
		if err == nil && !slices.Equal(alone, beside) {
			err = errors.New("a product beside copies differs from the same product alone")
		}
		return fmt.Sprintf("%s of copies while products ran", units.Seconds(overlap.Seconds())), err
	})
}

// results computes a product alone and downloads it.
func (r *rig) results(product *placed) ([]byte, error) {
	if err := cmp.Or(product.issue(), r.stream.Synchronize()); err != nil {
		return nil, err
	}
	return r.download(product.operands.Y)
}

// download returns the first bytes of a tensor.
func (r *rig) download(s runtime.Span) ([]byte, error) {
	s.Bytes = min(s.Bytes, smokeBytes)
	to := runtime.Span{Space: runtime.Host, Offset: smokeBytes, Bytes: s.Bytes}
	err := cmp.Or(r.stream.Copy(to, s), r.stream.Synchronize())
	return bytes.Clone(r.host[smokeBytes:][:s.Bytes]), err
}

// copyBeside repeats a product, and copies of a pattern to the device and back on another stream; it returns how long both went on at
// the same time.
func (r *rig) copyBeside(product *placed, copies runtime.Stream) (time.Duration, error) {
	from, to := r.host[:smokeBytes], r.host[smokeBytes:]
	for i := range from {
		from[i] = byte(i * 7)
	}
	up, down := runtime.Span{Space: runtime.Host, Bytes: smokeBytes}, runtime.Span{Space: runtime.Host, Offset: smokeBytes, Bytes: smokeBytes}
	middle := runtime.Span{Offset: 1 << 24, Bytes: smokeBytes}
	err := cmp.Or(r.stream.Record(r.start[0]), copies.Record(r.start[1]))
	for range repeats {
		err = cmp.Or(err, product.issue(), copies.Copy(middle, up), copies.Copy(down, middle))
	}
	err = cmp.Or(err, r.stream.Record(r.end[0]), copies.Record(r.end[1]), r.stream.Synchronize(), copies.Synchronize())
	if err == nil && !bytes.Equal(from, to) {
		err = errors.New("copies beside a product bring back other bytes")
	}
	if err != nil {
		return 0, err
	}
	begun, err := r.start[1].Since(r.start[0])
	if err != nil {
		return 0, err
	}
	ended, err := r.end[1].Since(r.end[0])
	if err != nil {
		return 0, err
	}
	computing, err := r.end[0].Since(r.start[0])
	return max(0, computing-max(0, begun)+min(0, ended)), err
}
