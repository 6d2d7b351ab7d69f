// Package nccl moves messages between GPUs of several processes through NCCL, which is looked for when the program runs, and never
// linked. Other communication of processes stays with package world.
//
// Each directed way has a communicator of two ranks of its own, the sender's 0 and the receiver's 1. So ways never wait for each other:
// NCCL orders all messages of one communicator. They are made with blocking=0, without which NCCL cannot abort them (NCCL's user guide,
// "Fault tolerance"), and with one or two blocks (CTAs), which the kernels of training hardly miss.
//
// NCCL refuses two ranks on one GPU. Since 2.30, NCCL_MULTI_RANK_GPU_ENABLE=1 in the environment of every rank allows it.
package nccl

import "errors"

var (
	// ErrLibrary says that there is no libnccl that can be used.
	ErrLibrary = errors.New("nccl")
	// ErrClosed says that a fabric was closed.
	ErrClosed = errors.New("nccl: the fabric is closed")
)

const (
	variable = "PLIMSOLL_NCCL"
	soname   = "libnccl.so.2"
	advice   = "install NCCL 2.18 or later, as PyPI's nvidia-nccl-cu12, and give the path of its " + soname + " in $" + variable
)
