// Package mpi moves messages between the processes of a world through MPI's standard ABI (MPI 5.0), which is looked for when the program
// runs, and never linked. Other communication of processes stays with package world.
package mpi

import "errors"

// ErrLibrary says that there is no library with MPI's standard ABI.
var ErrLibrary = errors.New("mpi")

const (
	variable = "PLIMSOLL_MPI_ABI"
	soname   = "libmpi_abi.so.1"
	advice   = "install an MPI with the standard ABI of MPI 5.0, as MPICH 5, and give the path of its " + soname + " in $" + variable
)
