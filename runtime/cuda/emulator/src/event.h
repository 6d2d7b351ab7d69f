// Events: named points of streams.
#pragma once
#include <cuda.h>
#include <memory>
#include <string>
#include <vector>

#include "stream.h"

namespace emulator {

// Event stands for its latest record. One in a capturing stream makes it stand for nodes of that capture; then only
// streams can wait for it, and only while the capture goes on.
struct Event {
    Context *context;
    unsigned flags;
    std::string name;
    RecordPtr record;               // null: never recorded outside a capture
    bool isCaptured = false;        // the latest record was one of a capture
    std::weak_ptr<Capture> capture; // of that record, while it goes on
    std::vector<Node *> captured;

    void set(const RecordPtr &latest) {
        record = latest;
        isCaptured = false;
    }
};

} // namespace emulator
