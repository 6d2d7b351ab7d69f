package world

import (
	"errors"
	"strings"
)

var errNodeList = errors.New("no list of machines, as in node[01-03,07],login1")

// firstHost returns the first machine of a list as Slurm compresses it: "gpu[03-05,9]-a,login1" begins with gpu03-a.
func firstHost(list string) (string, error) {
	var host strings.Builder
	for rest := list; rest != ""; {
		at := strings.IndexAny(rest, "[,]")
		if at < 0 {
			at = len(rest)
		}
		host.WriteString(rest[:at])
		if at == len(rest) || rest[at] == ',' {
			break
		}
		numbers, after, closed := strings.Cut(rest[at+1:], "]")
		first := numbers[:len(numbers)-len(strings.TrimLeft(numbers, "0123456789"))]
		if rest[at] != '[' || !closed || first == "" {
			return "", errNodeList
		}
		host.WriteString(first)
		rest = after
	}
	if name := host.String(); name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._") == "" {
		return name, nil
	}
	return "", errNodeList
}
