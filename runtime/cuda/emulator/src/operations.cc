#include "operations.h"

#include <cstdio>
#include <cstdlib>

namespace emulator {

uint32_t Operations::add(Operation operation) {
    const std::lock_guard<std::mutex> guard(mutex_);
    const uint32_t number = next_++;
    if (number / each >= most) {
        fprintf(stderr, "emulated GPU: more than %u operations in one checked process\n", most * each);
        abort();
    }
    if (!chunks_[number / each]) chunks_[number / each] = new Operation[each];
    chunks_[number / each].load()[number % each] = std::move(operation);
    return number;
}

Operations &operations() {
    static Operations &o = *new Operations;
    return o;
}

} // namespace emulator
