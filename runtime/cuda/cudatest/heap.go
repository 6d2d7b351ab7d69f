//go:build cuda && linux && amd64

package cudatest

// #include <stdlib.h>
// #include <string.h>
//
// enum { CHUNKS = 32 };
//
// static void litter(size_t bytes, size_t all) {
//     void *chunks[CHUNKS];
//     for (int i = 0; i < CHUNKS; i++) memset(chunks[i] = malloc(bytes), 'x', all);
//     for (int i = 0; i < CHUNKS; i++) free(chunks[i]);
// }
import "C"

// heapUnit is how the C library rounds up what malloc is asked for: to a multiple, less heapHead.
const heapUnit, heapHead = 16, 8

// LitterHeap leaves letters in memory that this thread's next malloc of so many bytes gets, up to the end of the chunk.
func LitterHeap(bytes int) { C.litter(C.size_t(bytes), C.size_t(heapRoom(bytes))) }

// heapRoom is how many bytes malloc gives who asks for these.
func heapRoom(bytes int) int { return (bytes+heapHead+heapUnit-1)/heapUnit*heapUnit - heapHead }

// HeapTail returns how many bytes of the chunk lie behind an allocation of so many.
func HeapTail(bytes int) int { return heapRoom(bytes) - bytes }
