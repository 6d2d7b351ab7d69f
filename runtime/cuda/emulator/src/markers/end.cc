// The last object but one of the library: the end of static shared memory, and what only the checked build has.
#include "../checks.h"
#include "../shared.h"

__thread char plimsollSharedEnd[64];

namespace emulator::checks {

#ifdef PLIMSOLL_CHECKED
extern const bool enabled = true;
#else
extern const bool enabled = false;
#endif

} // namespace emulator::checks
