package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"plimsoll/internal/fields"
)

var errNotGreen = errors.New("not green")

// runPart runs a command as a part, with a time limit, and adds what came of it to the results.
func runPart(ctx context.Context, o *options, command []string, out io.Writer) error {
	if o.part == "" || len(command) == 0 && o.missing == "" {
		return errors.New("run needs -part and a command, or -missing")
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	p := &outcome{Part: o.part, State: skipped, Summary: o.missing, Started: time.Now().UTC().Truncate(time.Second), Environment: environment{Commit: o.commit}}
	if t, err := (&part{options: *o}).target(); err == nil {
		p.Environment = describe(t, o.commit)
		if err := t.Device.Close(); err != nil {
			return err
		}
	}
	var log []byte
	if o.missing == "" {
		log = p.execute(ctx, o, command)
	}
	if err := keep(o.out, p, log); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s\t%s\t%.0f s\t%s\n", p.Part, p.State, p.Seconds, p.Summary)
	if p.State == red || p.State == stopped {
		return fmt.Errorf("%s: %w: %s", p.Part, errNotGreen, p.Summary)
	}
	return nil
}

// execute runs the command in a process group of its own, so that stopping it stops its children, and returns its output.
func (p *outcome) execute(ctx context.Context, o *options, command []string) []byte {
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	var stdout bytes.Buffer
	all := &transcript{}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&stdout, all), all
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	begin := time.Now()
	err := cmd.Run()
	p.Seconds = time.Since(begin).Seconds()
	if ctx.Err() != nil { // it was killed for that, and nothing else is known against it
		err = nil
	}
	p.judge(o, stdout.Bytes(), all.text.Bytes(), err)
	if ctx.Err() != nil {
		p.State, p.Summary = stopped, strings.TrimPrefix(fmt.Sprintf("%s; stopped after %v", p.Summary, o.limit), "; ")
	}
	return all.text.Bytes()
}

// transcript collects what a command prints, of which each stream has a writer of its own.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (t *transcript) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.Write(b)
}

// judge makes state, summary and figures of what a command gave.
func (p *outcome) judge(o *options, stdout, all []byte, failure error) {
	begun, took := p.Started, p.Seconds
	if o.result != "" && readJSON(o.result, p) == nil {
		p.Started, p.Seconds = begun, took
	} else if p.State = green; json.Valid(stdout) {
		p.Figures, p.Summary = stdout, plansSummary(stdout)
	}
	if o.tests {
		p.countTests(all)
	}
	if failure == nil {
		return
	}
	p.State = red
	p.Summary = cmp.Or(p.Summary, lastLine(all), failure.Error())
	if p.Markdown == "" && !o.tests {
		p.Markdown = "The end of its output:\n\n    " + strings.ReplaceAll(tail(all, 20), "\n", "\n    ") + "\n"
	}
}

var (
	passedTest  = regexp.MustCompile(`(?m)^\s*--- PASS: `)
	failedTest  = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	noGPU       = regexp.MustCompile(`needs a GPU: |there are 0 \(`)
	skippedTest = regexp.MustCompile(`(?m)^\s*--- SKIP: (\S+)`)
)

// countTests reads the output of a Go test binary with -test.v. Where no test ran, or one found no GPU, nothing is proven.
func (p *outcome) countTests(output []byte) {
	count := struct {
		Passed  int      `json:"passed"`
		Failed  []string `json:"failed"`
		Skipped []string `json:"skipped"`
	}{Passed: len(passedTest.FindAll(output, -1)), Failed: names(failedTest, output), Skipped: names(skippedTest, output)}
	p.State = green
	if count.Passed == 0 || len(count.Failed) > 0 {
		p.State = red
	}
	p.Summary = fmt.Sprintf("%d tests passed, %d failed, %d skipped", count.Passed, len(count.Failed), len(count.Skipped))
	if noGPU.Match(output) {
		p.State = red
		p.Summary += ": they found no GPU"
	}
	p.Markdown = p.Summary + ".\n"
	for what, list := range map[string][]string{"Failed": count.Failed, "Skipped": count.Skipped} {
		if len(list) > 0 {
			p.Markdown += fmt.Sprintf("\n%s: %s.\n", what, strings.Join(list, ", "))
		}
	}
	p.Figures, _ = fields.Marshal(count) // numbers and strings
}

func names(pattern *regexp.Regexp, output []byte) []string {
	all := []string{}
	for _, m := range pattern.FindAllSubmatch(output, -1) {
		all = append(all, string(m[1]))
	}
	return all
}

// plansSummary describes the report of plimsoll validate --json, the only command with a report of its own: of plans for one
// device, or of pipelines.
func plansSummary(raw []byte) string {
	var report struct {
		MedianError float64 `json:"median_error"`
		Rows        []struct {
			Identical *bool           `json:"identical"` // of pipelines null where nothing can be compared
			Predicted int64           `json:"predicted_peak_bytes"`
			Measured  int64           `json:"measured_peak_bytes"`
			Devices   json.RawMessage `json:"per_device"`
		} `json:"rows"`
	}
	if json.Unmarshal(raw, &report) != nil || len(report.Rows) == 0 {
		return ""
	}
	same, compared, exact, pipelines := 0, 0, 0, 0
	for _, r := range report.Rows {
		if r.Identical != nil {
			compared++
			if *r.Identical {
				same++
			}
		}
		if r.Predicted == r.Measured {
			exact++
		}
		if r.Devices != nil {
			pipelines++
		}
	}
	if pipelines > 0 {
		return fmt.Sprintf("%d pipelines: %d of %d with a flush bit-identical to one device, median error of the time %.1f %%",
			pipelines, same, compared, 100*report.MedianError)
	}
	return fmt.Sprintf("%d plans: %d bit-identical to store-all, %d at the predicted peak", len(report.Rows), same, exact)
}

func tail(text []byte, lines int) string {
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(len(all)-lines, 0):], "\n")
}

func lastLine(text []byte) string { return tail(text, 1) }

// mostLog is how much of a part's output the log keeps, in bytes: its end.
const mostLog = 1 << 20

// keep adds a part's outcome and its output to a folder. Parts that run beside each other take turns, by a lock on the log.
func keep(folder string, p *outcome, log []byte) error {
	f, err := os.OpenFile(filepath.Join(folder, logName), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err == nil {
		_, err = fmt.Fprintf(f, "==> %s: %s, %.0f s\n%s\n", p.Part, p.State, p.Seconds, log[max(len(log)-mostLog, 0):])
	}
	if err == nil {
		err = record(folder, p)
	}
	return errors.Join(err, f.Close())
}
