// Package nvidia calls NVIDIA's cuDNN 9 and cuBLAS where a machine has them. They are loaded when they are wanted: no
// program links them, and none of their headers is needed. The declarations here are their binary interface in our
// own words; the names are those of NVIDIA's reference manuals for cuDNN 9 and cuBLAS 12.
//
// Only deterministic algorithms are offered: the same call on the same bytes gives the same bits.
package nvidia
