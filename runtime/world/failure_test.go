package world

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// busy gives every rank a status, whose heartbeats all others know it by.
func busy(i int, o *Options) {
	o.Status = func() string { return fmt.Sprintf("device %d: B1", i) }
}

// Whichever rank dies, all others know at once which, where, and what it did.
func TestDeathIsToldToAll(t *testing.T) {
	t.Parallel()
	for dead := range 4 {
		bubble(t, fmt.Sprint(dead), func(t *testing.T, n *network) {
			worlds := n.world(t, 4, busy)
			time.Sleep(3 * time.Second)
			before := time.Now()
			if dead == 0 { // who is dead tells nobody that the first of these is lost
				for _, w := range worlds[1:] {
					n.wire(w, true).mute.Store(true)
				}
				for _, w := range worlds[1:] {
					_ = n.wire(w, true).Close()
				}
			} else {
				_ = n.wire(worlds[dead], false).Close()
			}
			others := slices.Delete(slices.Clone(worlds), dead, dead+1)
			text := fmt.Sprintf("rank %d on %s died: its connection was lost; the last it said: device %d: B1", dead, hostName(), dead)
			wantAll(t, ended(others...), dead, Died, text)
			if took := time.Since(before); took > 2*linger {
				t.Errorf("it took %v", took)
			}
			worlds[dead].Fail(errors.New("it is dead"))
			ended(worlds[dead])
		})
	}
}

// Whichever rank hangs, all know it when their patience is over.
func TestSilenceIsToldToAll(t *testing.T) {
	t.Parallel()
	for silent := range 3 {
		bubble(t, fmt.Sprint(silent), func(t *testing.T, n *network) {
			worlds := n.world(t, 3, busy)
			time.Sleep(2500 * time.Millisecond)
			others := slices.Delete(slices.Clone(worlds), silent, silent+1)
			if silent > 0 {
				n.wire(worlds[silent], false).mute.Store(true)
			} else {
				for _, w := range others {
					n.wire(w, true).mute.Store(true)
				}
			}
			before := time.Now()
			causes := ended(others...)
			wantAll(t, causes, silent, Silent, fmt.Sprintf("rank %d on %s was silent for 10s; the last it said: device %d: B1", silent, hostName(), silent))
			if took := time.Since(before); took < 9*time.Second || took > 13*time.Second {
				t.Errorf("it took %v", took)
			}
			ended(worlds...)
		})
	}
}

// A process that was stopped itself has heard nobody for long, and blames nobody.
func TestWhoSleptBlamesNobody(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(t *testing.T, _ *network) {
		a := wakefulness{patience: 10 * time.Second}
		var got []bool
		for _, pause := range []time.Duration{time.Hour, time.Second, 2 * time.Second, 30 * time.Second, time.Second} {
			time.Sleep(pause)
			got = append(got, a.slept())
		}
		if want := []bool{false, false, false, true, false}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

// A rank that fails says so to all; what it fails with is an error of its own there alone.
func TestFailureIsToldToAll(t *testing.T) {
	t.Parallel()
	own := errors.New("device 1: the disk is full")
	for failing := range 3 {
		bubble(t, fmt.Sprint(failing), func(t *testing.T, n *network) {
			worlds := n.world(t, 3, busy)
			worlds[failing].Fail(own)
			causes := ended(worlds...)
			wantAll(t, causes, failing, Failed, fmt.Sprintf("rank %d on %s failed: device 1: the disk is full", failing, hostName()))
			for rank, cause := range causes {
				if errors.Is(cause, own) != (rank == failing) {
					t.Errorf("rank %d: %v", rank, cause)
				}
				if _, err := worlds[rank].AllGather(t.Context(), nil); !errors.Is(err, cause) {
					t.Errorf("rank %d: a collective after the end: %v", rank, err)
				}
				if err := worlds[rank].Post("x", nil); !errors.Is(err, cause) {
					t.Errorf("rank %d: a message after the end: %v", rank, err)
				}
				if err := worlds[rank].Leave(t.Context()); !errors.Is(err, cause) {
					t.Errorf("rank %d leaves after the end: %v", rank, err)
				}
				worlds[rank].Fail(errors.New("twice")) // nothing happens
			}
		})
	}
}

// A process that waits in a collective ends with the world.
func TestCollectivesEndWithTheWorld(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(t *testing.T, n *network) {
		worlds := n.world(t, 3, nil)
		errs := make(chan error, 2)
		for _, w := range worlds[:2] {
			go func() {
				_, err := w.AllGather(t.Context(), nil)
				errs <- err
			}()
		}
		synctest.Wait()
		worlds[2].Fail(errors.New("no more"))
		for range 2 {
			wantAll(t, []error{<-errs}, 2, Failed, fmt.Sprintf("rank 2 on %s failed: no more", hostName()))
		}
		ended(worlds...)
	})
}

// All processes have a result that was complete before the end, whoever failed since. Each process finds for itself which fault the result
// has.
func TestWhatWasCompleteBeforeTheEnd(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(t *testing.T, n *network) {
		worlds := n.world(t, 2, nil)
		worlds[0].Fail(errors.New("no more"))
		ended(worlds...)
		result := make(chan [][]byte, 1)
		for range 100 { // select chooses at random
			result <- [][]byte{{1}, {2}}
			if parts, err := worlds[1].outcome(worlds[1].Context(), result); err != nil || len(parts) != 2 {
				t.Fatalf("%d parts, %v", len(parts), err)
			}
		}
	})
}

// Who leaves and does not wait for the others ends the world.
func TestLeavingEarlyEndsTheWorld(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(t *testing.T, n *network) {
		worlds := n.world(t, 3, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := worlds[1].Leave(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it leaves with %v", err)
		}
		wantAll(t, ended(worlds[0], worlds[2]), 1, Left, fmt.Sprintf("rank 1 on %s left while others went on", hostName()))
	})
}

// Ranks that call other collectives are told which.
func TestOtherCollectives(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(t *testing.T, n *network) {
		worlds := n.world(t, 2, nil)
		go func() { _, _ = worlds[0].AllGather(t.Context(), nil) }()
		synctest.Wait()
		_, err := worlds[1].Broadcast(t.Context(), 1, nil)
		text := fmt.Sprintf("rank 1 on %s failed: collective 0 is Broadcast from rank 1, but AllGather for rank 0 on %s", hostName(), hostName())
		wantAll(t, append(ended(worlds...), err), 1, Failed, text)
		if _, err := worlds[0].Broadcast(t.Context(), 2, nil); err == nil {
			t.Error("a broadcast from a rank that is not there")
		}
	})
}

// A contradiction to this world is reported as one line, the same for all who are there.
func TestContradictions(t *testing.T) {
	t.Parallel()
	host := hostName()
	for _, c := range []struct {
		name   string
		ranks  []int
		change func(i int, o *Options)
		reason Reason
		says   string
	}{
		{"twice", []int{0, 1, 1}, nil, Duplicate, "two processes are rank 1: "},
		{"zero twice", []int{0, 1}, func(i int, o *Options) {
			if i == 1 { // it reached another's hub
				o.Rank = 1
				o.Size = 1 << 10
			}
		}, OtherSize, fmt.Sprintf("rank 0 on %s is one of 3 processes, rank 1 on %s one of 1024", host, host)},
		{"other seed", []int{0, 2}, func(i int, o *Options) {
			o.Agree = map[string]string{"program": "a", "seed": fmt.Sprint(i)}
		}, "", fmt.Sprintf("ranks 0 on %s and 2 on %s differ in seed: 0 and 1; all need the same", host, host)},
		{"no seed", []int{0, 2}, func(i int, o *Options) {
			if i == 0 {
				o.Agree = map[string]string{"seed": "7"}
			}
		}, "", fmt.Sprintf("ranks 0 on %s and 2 on %s differ in seed: 7 and none; all need the same", host, host)},
	} {
		bubble(t, c.name, func(t *testing.T, n *network) {
			for i, o := range n.join(t.Context(), 3, c.ranks, c.change) {
				if o.err == nil || !strings.HasPrefix(o.err.Error(), c.says) || strings.Contains(o.err.Error(), "\n") {
					t.Errorf("process %d: %v, want %s", i, o.err, c.says)
				}
				if e, ok := errors.AsType[*RefusalError](o.err); ok != (c.reason != "") || ok && e.Reason != c.reason {
					t.Errorf("process %d: %#v", i, o.err)
				}
				if is[*DisagreementError](o.err) != (c.reason == "") {
					t.Errorf("process %d: %#v", i, o.err)
				}
			}
		})
	}
}

// Rank 0 says why its world never met also when that was known before its own member came to the hub, who is then told nothing.
func TestVerdictBeforeRankZeroHasEntered(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(t *testing.T, n *network) {
		ctx := t.Context()
		w := &World{o: n.options(0, 2)}
		var err error
		if err = w.o.fill(); err == nil {
			w.guard, err = newGuard(&w.o)
		}
		if err != nil {
			t.Fatal(err)
		}
		w.hub = newHub(w.o, w.guard)
		own, err := w.hub.open(ctx)
		if err != nil {
			t.Fatal(err)
		}
		other := n.join(ctx, 3, []int{1}, nil)[0].err
		synctest.Wait() // until the hub has done all that it can without rank 0
		for rank, err := range []error{(&rendezvous{w}).enterOwn(ctx, own), other} {
			if e, ok := errors.AsType[*RefusalError](err); !ok || e.Reason != OtherSize {
				t.Errorf("rank %d: %v, want that it is of another size", rank, err)
			}
		}
	})
}

// With another secret nobody is taken in, rank 0 waits for who should come, and no text has a secret in it.
func TestAnotherSecret(t *testing.T) {
	t.Parallel()
	const other = "another secret, as long"
	bubble(t, "", func(t *testing.T, n *network) {
		var notes atomic.Int32
		out := n.join(t.Context(), 2, []int{0, 1}, func(i int, o *Options) {
			o.Note = func(text string) {
				if notes.Add(1); !strings.HasSuffix(text, errOtherSecret.Error()) {
					t.Errorf("note %q", text)
				}
			}
			if i == 1 {
				o.Secret = []byte(other)
			}
		})
		missing, ok := errors.AsType[*MissingError](out[0].err)
		if !ok || !slices.Equal(missing.Missing, []int{1}) || len(missing.Refused) != 1 || !strings.Contains(out[0].err.Error(), "turned away: ") || notes.Load() != 1 {
			t.Errorf("rank 0: %v; %d notes", out[0].err, notes.Load())
		}
		if e, ok := errors.AsType[*RefusalError](out[1].err); !ok || e.Reason != OtherSecret {
			t.Errorf("rank 1: %v", out[1].err)
		}
		for _, o := range out {
			if strings.Contains(o.err.Error(), other) || strings.Contains(o.err.Error(), secret) {
				t.Errorf("a secret in %v", o.err)
			}
		}
	})
}

// Who is missing is named, everywhere where somebody is.
func TestMissingRanksAreNamed(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(t *testing.T, n *network) {
		for i, o := range n.join(t.Context(), 8, []int{0, 2, 7}, nil) {
			if want := "ranks 1, 3 to 6 of 8 missing after 2m0s at rank0:1"; o.err == nil || o.err.Error() != want {
				t.Errorf("process %d: %v, want %s", i, o.err, want)
			}
		}
	})
	bubble(t, "rank 0", func(t *testing.T, n *network) {
		o := n.join(t.Context(), 2, []int{1}, nil)[0]
		if want := "rank 0 of 2 missing after 2m0s at rank0:1: connection refused"; o.err == nil || o.err.Error() != want {
			t.Errorf("%v, want %s", o.err, want)
		}
	})
}

// Rank 0 may be the last to come, and a rank that gave up may come again.
func TestLateRanks(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(t *testing.T, n *network) {
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
			defer cancel()
			o := n.options(1, 3)
			if _, err := Join(ctx, o); !errors.Is(err, context.DeadlineExceeded) && !is[*MissingError](err) {
				t.Errorf("rank 1 gives up with %v", err)
			}
		}()
		out := n.join(t.Context(), 3, []int{0, 1, 2}, func(i int, o *Options) {
			dial, listen := o.dial, o.listen
			wait := []time.Duration{30 * time.Second, time.Minute, 90 * time.Second}[i]
			o.listen = func(ctx context.Context, g *guard, a string) (net.Listener, error) {
				time.Sleep(wait)
				return listen(ctx, g, a)
			}
			first := true
			o.dial = func(ctx context.Context, g *guard, a string) (net.Conn, error) {
				if first {
					first = false
					time.Sleep(wait)
				}
				return dial(ctx, g, a)
			}
		})
		for i, o := range out {
			if o.err != nil {
				t.Fatalf("rank %d: %v", i, o.err)
			}
		}
		each([]*World{out[0].World, out[1].World, out[2].World}, func(w *World) {
			if err := w.Leave(t.Context()); err != nil {
				t.Error(err)
			}
		})
	})
}

// A process that comes when the world has started is told so, when it has waited for the next one in vain.
func TestTooLate(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(t *testing.T, n *network) {
		worlds := n.world(t, 2, nil)
		o := n.join(t.Context(), 2, []int{1}, nil)[0]
		if want := fmt.Sprintf("rank 0 of 2 missing after 2m0s at rank0:1: the world of rank 0 on %s has started without this process", hostName()); o.err == nil || o.err.Error() != want {
			t.Errorf("%v, want %s", o.err, want)
		}
		each(worlds, func(w *World) { _ = w.Leave(t.Context()) })
	})
}

// An interrupted rendezvous ends for all: where it was interrupted with that, elsewhere with the rank.
func TestInterruptedRendezvous(t *testing.T) {
	t.Parallel()
	stop := errors.New("stop")
	bubble(t, "", func(t *testing.T, n *network) {
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			time.Sleep(5 * time.Second)
			cancel(stop)
		}()
		done := make(chan error)
		go func() {
			_, err := Join(ctx, n.options(0, 3))
			done <- err
		}()
		o := n.join(t.Context(), 3, []int{1}, nil)[0]
		if err := <-done; !errors.Is(err, stop) {
			t.Errorf("rank 0: %v", err)
		}
		wantAll(t, []error{o.err}, 0, Failed, fmt.Sprintf("rank 0 on %s failed: interrupted during the rendezvous", hostName()))
	})
}
