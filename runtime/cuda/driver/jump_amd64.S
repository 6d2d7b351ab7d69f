//go:build cuda && linux && amd64

// Every function of the driver is a jump through its slot of plimsoll_cuda_table, which load.c fills. Arguments and
// results pass through untouched, whatever their types.

	.section .note.GNU-stack, "", @progbits
	.text

	.set slot, 0
	.macro jump name
	.globl \name
	.hidden \name
	.type \name, @function
\name:
	jmp *(plimsoll_cuda_table + 8 * slot)(%rip)
	.size \name, . - \name
	.set slot, slot + 1
	.endm

#define SYMBOL(name) jump name
#include "symbols.h"
