// Package cuda is the kernel library of NVIDIA GPUs: every op of package kernels in float32 and bfloat16, products in TF32
// too, in CUDA C of our own, compiled to PTX that is part of the binary (ptx/, from src/, by `make kernels`).
//
// A launch is bound to addresses when it is prepared; issuing it allocates nothing. Results depend on the operands and on
// the shapes alone: sums that are shared out between blocks are written as parts into the workspace and added in a fixed
// order, and no kernel adds with atomics. So the same launch gives the same bits each time.
//
// Convolutions and linear layers are implicit matrix products (src/conv.cuh): in registers for float32 (src/conv.cu), on
// tensor cores for bfloat16 and TF32 where the GPU has them (src/mma.cu). Images are N,H,W,C throughout.
// Attention with a causal mask runs on tensor cores in bfloat16 and TF32, too (src/flashforward.cu, src/flashbackward.cu), else in registers
// (src/attention.cu).
// Where a machine has cuDNN or cuBLAS (package nvidia), the fastest of them and ours is taken, by measuring (choice.go).
// Whatever is taken first proves that it computes what naive sums do (proof.go, src/proof.cu).
//
// Everything but this file and the check of ptx/ has the build tag cuda.
package cuda
