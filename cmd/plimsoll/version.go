package main

import (
	"context"
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"
)

// version is set by the build: go build -ldflags "-X main.version=...".
var version = "dev"

func (a *app) version() *cobra.Command {
	return command("version", "Print the version", "", func(context.Context) error { return a.printVersion() })
}

func (a *app) printVersion() error {
	v := struct {
		Version  string `json:"version"`
		Go       string `json:"go"`
		Platform string `json:"platform"`
	}{version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
	return a.print(v, func(w io.Writer) {
		fmt.Fprintf(w, "plimsoll %s (%s, %s)\n", v.Version, v.Go, v.Platform)
	})
}
