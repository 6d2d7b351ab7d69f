// Streams: ordered queues of work, each with a thread of the host.
#pragma once
#include <condition_variable>
#include <cuda.h>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "clock.h"

namespace emulator {

class Context;
class Capture;
struct Node;

// Record is a point of a stream: it is complete when everything in front of it has run.
struct Record {
    ClockPtr clock;  // of what it stands behind
    bool done = false;
    double time = 0; // seconds, when it became complete
    std::condition_variable changed;
};

using RecordPtr = std::shared_ptr<Record>;

// Task is one piece of work. It waits for the records, then runs.
struct Task {
    enum Kind { launch, copy, fill, host, order };
    Kind kind = order;
    std::string what;
    std::function<CUresult()> run; // without the lock; empty when the task only orders
    std::vector<RecordPtr> waits;
    std::vector<uint64_t> touches; // addresses of the memory that a copy reads and writes
    CUresult injected = CUDA_SUCCESS; // the error it ends with instead of running
    RecordPtr record;
};

// Work says which task runs on this thread of the host, for the checks.
struct Work {
    const Task *task = nullptr;
    Context *context = nullptr;
    int party = -1;
    uint32_t operation = 0; // the number that checks knows it by
};
extern thread_local Work currentWork;

// Stream is one queue. All of its methods want the driver's mutex held. Its thread keeps it alive until it is drained.
class Stream : public std::enable_shared_from_this<Stream> {
public:
    static std::shared_ptr<Stream> make(Context &context, unsigned flags, std::string name);

    // Issues a task: behind all tasks before it. It returns the point behind it.
    RecordPtr push(Task task);
    // Issues a wait: what comes later runs after the record.
    void waitFor(const RecordPtr &record);
    // The point behind everything issued so far; null when nothing was.
    const RecordPtr &tail() const { return tail_; }
    bool idle() const { return !tail_ || tail_->done; }
    // Lets the thread end when the queue is empty.
    void close();

    Context &context() const { return context_; }
    const std::string &name() const { return name_; }
    unsigned flags() const { return flags_; }
    bool blocking() const { return (flags_ & CU_STREAM_NON_BLOCKING) == 0; }
    // Makes the party's clock hear of what the host, or another stream, knows.
    void join(const Clock &clock) { party_.join(clock); }

    // The capture that the stream takes part in, and its state here; see graph.h.
    std::shared_ptr<Capture> capture;
    std::vector<Node *> captured; // what its next node depends on
    std::string refused;          // the call on this stream that returned an error, if one did
    int priority = 0;

private:
    Stream(Context &context, unsigned flags, std::string name);
    static void work(std::shared_ptr<Stream> self, std::unique_lock<std::mutex> lock);
    void perform(std::unique_lock<std::mutex> &lock, Task &task);
    void delay();

    Context &context_;
    const unsigned flags_;
    const std::string name_;
    Party party_;
    RecordPtr tail_;
    std::deque<Task> queue_;
    std::condition_variable changed_;
    bool closed_ = false;
    std::mt19937_64 chance_;
};

} // namespace emulator
