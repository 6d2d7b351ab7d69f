// Every function of the interface does this before and after its own part.
#pragma once
#include <cuda.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "driver.h"
#include "graph.h"
#include "names.h"

namespace emulator {

enum class Needs {
    nothing, // not even cuInit
    init,
    context, // a current context that is not dead
    release, // a current context; when it is dead its things are released all the same
};

// Call is one call while it runs: the driver's lock and the thread's current context.
class Call {
public:
    Call(const char *name, Needs needs);

    // Returns the error with which the call ends without doing anything: an injected failure, a missing context, a dead
    // one.
    CUresult begin();
    CUresult end(CUresult result);

    // Refuses what must not happen while a stream captures; see cuThreadExchangeStreamCaptureMode.
    CUresult unsafe() const;
    // The current context's error, after a wait during which it may have died.
    CUresult outcome() const { return context->error(); }

    const std::string name;
    std::unique_lock<std::mutex> lock;
    Context *context = nullptr;

private:
    const Needs needs_;
};

template <class Body> CUresult call(const char *name, Needs needs, Body body) {
    Call c(name, needs);
    CUresult result = c.begin();
    if (result == CUDA_SUCCESS) result = body(c);
    return c.end(result);
}

// Issue is the stream of a call that issues work. A program that goes on with a stream after such a call failed has
// ignored the error, which is a finding.
class Issue {
public:
    Issue(Call &call, CUstream handle);
    // Puts the task behind all others, or into the graph that the stream captures.
    CUresult push(Task task, CUgraphNodeType type);
    CUresult end(CUresult result);

    Call &call;
    const std::shared_ptr<Stream> stream; // null for a handle of no stream
    // Makes the stream wait for what the default stream has, or the other way round.
    void orderDefault() const;
    // Refuses work in an invalid capture, and in the default stream while a stream captures that it would wait for.
    CUresult checkCapture() const;
};

template <class Body> CUresult issue(const char *name, CUstream handle, Body body) {
    Call c(name, Needs::context);
    CUresult result = c.begin();
    if (c.context == nullptr) return c.end(result);
    Issue i(c, handle);
    if (result == CUDA_SUCCESS) result = i.stream ? body(i) : CUDA_ERROR_INVALID_HANDLE;
    return c.end(i.end(result));
}

// The thread's stack of contexts; the last one is current.
std::vector<Context *> &contextStack();
// The thread's mode, for Call::unsafe.
CUstreamCaptureMode &captureMode();

#define API(function, ...) extern "C" __attribute__((visibility("default"))) CUresult function(__VA_ARGS__)

} // namespace emulator
