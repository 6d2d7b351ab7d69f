#include "../shared.h"
__thread char plimsollSharedBegin[64];
