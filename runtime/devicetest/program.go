package devicetest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"plimsoll/runtime"
)

// A program is a random list of launches, copies, writes by the caller, records and waits, over several streams. The
// generator puts a record and a wait wherever two steps touch the same bytes, one of them writing, and nothing orders
// them yet. So every execution that keeps the order of streams and events has the result of running the steps one
// after the other. Events are few and are recorded again and again while waits for them are pending.
//
// Order is tracked with vector clocks (Mattern 1989). Threads are the streams and, last, the caller.
type program struct {
	devices int
	steps   []step
}

type stepKind uint8

const (
	mixStep stepKind = iota
	copyStep
	peerStep
	writeStep // by the caller
	recordStep
	waitStep
	awaitEventStep  // by the caller
	awaitStreamStep // by the caller
)

// step says what is done; which fields count depends on the kind.
type step struct {
	kind     stepKind
	thread   int // a stream, or the caller
	dst, src int // buffers
	event    int
	seed     byte // of what the caller writes
}

func (s step) String() string {
	switch s.kind {
	case mixStep:
		return fmt.Sprintf("s%d: mix b%d, b%d", s.thread, s.dst, s.src)
	case copyStep:
		return fmt.Sprintf("s%d: copy b%d, b%d", s.thread, s.dst, s.src)
	case peerStep:
		return fmt.Sprintf("s%d: copy to peer b%d, b%d", s.thread, s.dst, s.src)
	case writeStep:
		return fmt.Sprintf("caller: write b%d", s.dst)
	case recordStep:
		return fmt.Sprintf("s%d: record e%d", s.thread, s.event)
	case waitStep:
		return fmt.Sprintf("s%d: wait e%d", s.thread, s.event)
	case awaitEventStep:
		return fmt.Sprintf("caller: wait e%d", s.event)
	}
	return fmt.Sprintf("caller: wait s%d", s.thread)
}

func (p *program) String() string {
	var b strings.Builder
	for i, s := range p.steps {
		fmt.Fprintf(&b, "%3d %v\n", i, s)
	}
	return b.String()
}

// The size of a device of a program. Buffers, streams and events are numbered through the devices.
const (
	arenaBuffers     = 5
	hostBuffers      = 3
	buffersOfDevice  = arenaBuffers + hostBuffers
	streamsOfDevice  = 3
	eventsOfDevice   = 3
	bufferBytes      = 2048
	stepsOfProgram   = 60 // without the records and waits
	chanceOfOldEvent = 2  // one in two waits uses an event that is recorded already, where there is one
)

func deviceOf(buffer int) int { return buffer / buffersOfDevice }

func inHost(buffer int) bool { return buffer%buffersOfDevice >= arenaBuffers }

func spanOf(buffer int) runtime.Span {
	i := int64(buffer % buffersOfDevice)
	if inHost(buffer) {
		return host((i-arenaBuffers)*bufferBytes, bufferBytes)
	}
	return arena(i*bufferBytes, bufferBytes)
}

// clock counts, for each thread, its steps that have happened.
type clock []int

func (c clock) join(d clock) {
	for i := range c {
		c[i] = max(c[i], d[i])
	}
}

// access is the latest step of each thread that read or wrote a buffer.
type access struct{ reads, writes clock }

type generator struct {
	*program
	random  *rand.Rand
	threads []clock
	events  []clock // what the latest Record of each stands for
	buffers []access
}

func newProgram(seed uint64, devices int) *program {
	threads := devices*streamsOfDevice + 1
	g := &generator{program: &program{devices: devices}, random: rand.New(rand.NewPCG(seed, uint64(devices)))}
	for range threads {
		g.threads = append(g.threads, make(clock, threads))
	}
	for range devices * eventsOfDevice {
		g.events = append(g.events, make(clock, threads))
	}
	for range devices * buffersOfDevice {
		g.buffers = append(g.buffers, access{make(clock, threads), make(clock, threads)})
	}
	for range stepsOfProgram {
		g.next()
	}
	return g.program
}

func (g *generator) caller() int { return len(g.threads) - 1 }

// next adds one step that does something, with what must come before it, or a record or wait that nobody needs.
func (g *generator) next() {
	stream := g.random.IntN(g.caller())
	device := stream / streamsOfDevice
	switch g.random.IntN(10) {
	case 0:
		g.record(stream, g.eventOf(device))
	case 1:
		g.wait(stream, g.random.IntN(len(g.events)))
	case 2:
		buffer := g.buffer(device, arenaBuffers, buffersOfDevice)
		g.touch(step{kind: writeStep, thread: g.caller(), dst: buffer, seed: byte(g.random.Uint32())})
	case 3, 4, 5:
		dst, src := g.two(device, buffersOfDevice)
		g.touch(step{kind: copyStep, thread: stream, dst: dst, src: src})
	case 6:
		if g.devices == 2 {
			dst, src := g.buffer(1-device, 0, arenaBuffers), g.buffer(device, 0, arenaBuffers)
			g.touch(step{kind: peerStep, thread: stream, dst: dst, src: src})
		}
	default:
		dst, src := g.two(device, arenaBuffers)
		g.touch(step{kind: mixStep, thread: stream, dst: dst, src: src})
	}
}

func (g *generator) buffer(device, from, to int) int {
	return device*buffersOfDevice + from + g.random.IntN(to-from)
}

// two returns two different buffers among the first n of a device.
func (g *generator) two(device, n int) (int, int) {
	a, b := g.random.IntN(n), g.random.IntN(n-1)
	if b >= a {
		b++
	}
	return device*buffersOfDevice + a, device*buffersOfDevice + b
}

func (g *generator) eventOf(device int) int {
	return device*eventsOfDevice + g.random.IntN(eventsOfDevice)
}

// touch adds s behind the waits that it needs.
func (g *generator) touch(s step) {
	dst := g.buffers[s.dst]
	for other := range g.threads {
		need := max(dst.reads[other], dst.writes[other])
		if s.kind != writeStep {
			need = max(need, g.buffers[s.src].writes[other])
		}
		g.order(s.thread, other, need)
	}
	now := g.add(s)
	dst.writes[s.thread] = now
	if s.kind != writeStep {
		g.buffers[s.src].reads[s.thread] = now
	}
}

// order makes sure that step number need of other has happened when the next step of thread does.
func (g *generator) order(thread, other, need int) {
	g.threads[thread].join(g.threads[g.caller()]) // what the caller has seen is over before it issues anything
	if thread == other || g.threads[thread][other] >= need {
		return
	}
	if thread == g.caller() && g.random.IntN(2) == 0 {
		g.add(step{kind: awaitStreamStep, thread: other})
		g.threads[thread].join(g.threads[other])
		return
	}
	g.wait(thread, g.eventFor(other, need))
}

// eventFor returns an event that stands for step number need of a stream.
func (g *generator) eventFor(stream, need int) int {
	for e := range g.events {
		if g.events[e][stream] >= need && g.random.IntN(chanceOfOldEvent) == 0 {
			return e
		}
	}
	e := g.eventOf(stream / streamsOfDevice)
	g.record(stream, e)
	return e
}

func (g *generator) record(stream, event int) {
	g.add(step{kind: recordStep, thread: stream, event: event})
	copy(g.events[event], g.threads[stream])
}

func (g *generator) wait(thread, event int) {
	kind := waitStep
	if thread == g.caller() {
		kind = awaitEventStep
	}
	g.add(step{kind: kind, thread: thread, event: event})
	g.threads[thread].join(g.events[event])
}

// add appends s and returns its number in its thread.
func (g *generator) add(s step) int {
	g.steps = append(g.steps, s)
	if s.kind == awaitStreamStep {
		return 0
	}
	c := g.threads[s.thread]
	c.join(g.threads[g.caller()])
	c[s.thread]++
	return c[s.thread]
}

// initial is the content of a buffer before the program.
func initial(buffer int) []byte { return pattern(bufferBytes, byte(buffer*37)) }

// want runs the program step by step and returns what all buffers hold at the end.
func (p *program) want() [][]byte {
	buffers := make([][]byte, p.devices*buffersOfDevice)
	for i := range buffers {
		buffers[i] = initial(i)
	}
	for _, s := range p.steps {
		switch s.kind {
		case mixStep:
			mix(buffers[s.dst], buffers[s.src])
		case copyStep, peerStep:
			copy(buffers[s.dst], buffers[s.src])
		case writeStep:
			copy(buffers[s.dst], pattern(bufferBytes, s.seed))
		}
	}
	return buffers
}

// stage is where programs run: devices with streams and events, used for one program after the other.
type stage struct {
	*kit
	streams []runtime.Stream
	events  []runtime.Event
	setup   []runtime.Stream // one of each device, for before and after
}

func newStage(k *kit) *stage {
	s := &stage{kit: k}
	for i, d := range k.reserved() {
		s.setup = append(s.setup, k.stream(d, fmt.Sprintf("setup%d", i)))
		for j := range streamsOfDevice {
			s.streams = append(s.streams, k.stream(d, fmt.Sprintf("s%d", i*streamsOfDevice+j)))
		}
		for range eventsOfDevice {
			s.events = append(s.events, k.event(d))
		}
	}
	return s
}

// differs runs the program and returns the buffers that do not hold what they should.
func (s *stage) differs(p *program) []int {
	s.prepare()
	for _, step := range p.steps {
		s.must(s.issue(step))
	}
	for _, stream := range s.streams {
		s.soon(stream.Name(), stream.Synchronize)
	}
	var wrong []int
	for i, want := range p.want() {
		if !bytes.Equal(s.contents(i), want) {
			wrong = append(wrong, i)
		}
	}
	return wrong
}

// prepare fills all buffers.
func (s *stage) prepare() {
	for i := range len(s.devices) * buffersOfDevice {
		if d := deviceOf(i); inHost(i) {
			copy(s.hostBytes(i), initial(i))
		} else {
			s.write(s.devices[d], s.setup[d], spanOf(i), initial(i))
		}
	}
}

func (s *stage) contents(buffer int) []byte {
	if inHost(buffer) {
		return slices.Clone(s.hostBytes(buffer))
	}
	d := deviceOf(buffer)
	return s.read(s.devices[d], s.setup[d], spanOf(buffer))
}

func (s *stage) hostBytes(buffer int) []byte {
	b, err := s.devices[deviceOf(buffer)].HostBytes(spanOf(buffer))
	s.must(err)
	return b
}

func (s *stage) issue(x step) error {
	switch x.kind {
	case writeStep:
		copy(s.hostBytes(x.dst), pattern(bufferBytes, x.seed))
		return nil
	case awaitEventStep:
		return s.events[x.event].Synchronize()
	}
	stream := s.streams[x.thread]
	switch x.kind {
	case mixStep:
		return stream.Launch(s.suite.Mix(s.devices[deviceOf(x.dst)], spanOf(x.dst), spanOf(x.src)))
	case copyStep:
		return stream.Copy(spanOf(x.dst), spanOf(x.src))
	case peerStep:
		return stream.CopyPeer(s.devices[deviceOf(x.dst)], spanOf(x.dst), spanOf(x.src))
	case recordStep:
		return stream.Record(s.events[x.event])
	case waitStep:
		return stream.Wait(s.events[x.event])
	}
	return stream.Synchronize()
}

// randomPrograms runs seeded programs.
func randomPrograms(k *kit) {
	programs := 100
	if testing.Short() {
		programs = 30
	}
	s := newStage(k)
	for seed := range uint64(programs) {
		s.check(newProgram(seed, len(k.devices)), seed)
	}
}

func (s *stage) check(p *program, seed uint64) {
	s.Helper()
	if wrong := s.differs(p); wrong != nil {
		s.Fatalf("seed %d: buffers %v hold wrong bytes\n%v", seed, wrong, p)
	}
}

// CheckProgram runs the random program of a seed on fresh devices, for fuzzing.
func (s Suite) CheckProgram(t testing.TB, seed uint64, devices int) {
	newStage(newKit(t, s, devices)).check(newProgram(seed, devices), seed)
}

// CountDifferences returns how many of the first n random programs give wrong results, which is how a device's test
// shows that the programs notice a device that is wrong.
func (s Suite) CountDifferences(t testing.TB, n uint64) int {
	stage := newStage(newKit(t, s, 1))
	count := 0
	for seed := range n {
		if stage.differs(newProgram(seed, 1)) != nil {
			count++
		}
	}
	return count
}
