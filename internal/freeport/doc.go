// Package freeport finds a TCP port for who will listen only later, and in another process.
package freeport
