//go:build ignore

// Memory turns the memory chart of a page that plimsoll validate or train wrote into a picture of its own:
//
//	go run docs/memory.go out/memory/index.html >docs/memory.svg
package main

import (
	"fmt"
	"os"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "memory:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want the path of one page, have %d arguments", len(args))
	}
	page, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	style, err := between(string(page), "<style>", "</style>")
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	// The memory chart is the last of a page.
	chart, err := between(string(page)[max(0, strings.LastIndex(string(page), "<svg ")):], "<svg ", "</svg>")
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	_, err = fmt.Printf("<svg xmlns=\"http://www.w3.org/2000/svg\" %s<style>%s%s</style></svg>\n", chart,
		strings.TrimSpace(style), "svg{margin:0;background:var(--card);font-family:system-ui,sans-serif}")
	return err
}

// between returns the text from the end of the first mark to the next second one.
func between(text, first, second string) (string, error) {
	_, rest, ok := strings.Cut(text, first)
	inside, _, closed := strings.Cut(rest, second)
	if !ok || !closed {
		return "", fmt.Errorf("no %s...%s in it", first, second)
	}
	return inside, nil
}
