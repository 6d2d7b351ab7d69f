package main

import (
	"github.com/schollz/progressbar/v3"

	"plimsoll/internal/visible"
)

// progress returns a function that shows how far something is: a bar on a terminal, nothing elsewhere.
func (a *app) progress(what string) func(done, total int) {
	if a.quiet || !a.stderr.terminal() {
		return nil
	}
	var bar *progressbar.ProgressBar
	return func(done, total int) {
		if bar == nil {
			bar = progressbar.NewOptions(total,
				progressbar.OptionSetWriter(a.stderr), progressbar.OptionSetDescription(visible.Text(what)),
				progressbar.OptionShowCount(), progressbar.OptionClearOnFinish(), progressbar.OptionSetWidth(30))
		}
		_ = bar.Set(done) // a bar that cannot be drawn is no reason to fail
	}
}
