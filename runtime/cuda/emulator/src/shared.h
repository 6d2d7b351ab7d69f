// Where static shared memory lies: build.sh links the kernels between two objects, so that their __shared__ arrays,
// which are local to a thread of the host, lie between two markers.
#pragma once

extern __thread char plimsollSharedBegin[64];
extern __thread char plimsollSharedEnd[64];
