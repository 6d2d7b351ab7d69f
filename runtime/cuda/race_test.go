//go:build cuda && linux && amd64 && race

package cuda_test

const raceEnabled = true
