// Package cuda is the kernel library of NVIDIA GPUs: every op of package kernels, in float32, TF32 and bfloat16. Kernels are CUDA C (src),
// compiled to PTX (ptx) that is part of the binary.
//
// A launch is bound to addresses when it is prepared; issuing it allocates nothing. Sums of several blocks are added in a fixed order,
// without atomics, so the same launch gives the same bits each time. Products run on tensor cores for bfloat16 and TF32 where the GPU
// has them; images are N,H,W,C. Where a machine has cuDNN or cuBLAS (package nvidia), measuring chooses between them and ours. Each chosen
// kernel first proves that it computes what naive sums do (proof.go). Everything but this file and the check of ptx has the build
// tag cuda.
package cuda
