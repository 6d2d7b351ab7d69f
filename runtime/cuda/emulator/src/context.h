// Contexts: what belongs to one user of a device.
#pragma once
#include <condition_variable>
#include <cuda.h>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "stream.h"

namespace emulator {

struct Device;

// Context owns streams and everything else that a program made while it was current. After an error of its work it is
// dead: nothing runs any more and every call returns that error, as in CUDA. The driver's mutex guards it.
class Context {
public:
    explicit Context(Device &device, unsigned flags, bool primary);
    Context(const Context &) = delete;

    // The stream of a handle, the legacy one for 0; null for a handle of no live stream.
    std::shared_ptr<Stream> stream(CUstream handle);
    std::vector<std::shared_ptr<Stream>> streams() const; // all of them, the legacy one and lanes too
    // Lets go of a stream; it ends when its work has.
    void remove(const std::shared_ptr<Stream> &stream);
    void add(const std::shared_ptr<Stream> &stream) { all_.insert(stream); }

    bool dead() const;
    CUresult error() const;
    void die(CUresult error, const std::string &what);
    // A call that is not a release returned the error.
    void delivered() { delivered_ = true; }
    // Blocks until all issued work has run. The caller's knowledge then includes it.
    void synchronize(std::unique_lock<std::mutex> &lock);
    // Reports what was never released and an error that nobody heard of; memory is given back.
    void finish(std::unique_lock<std::mutex> &lock);
    // The same, and ends all threads.
    void close(std::unique_lock<std::mutex> &lock);

    Device &device;
    const unsigned flags;
    const bool primary;
    std::set<Context *> peers;      // whose memory kernels here may use
    int workers = 0;                // threads of streams
    std::condition_variable drained; // when one of them ends
    std::set<std::string> held;     // names of what exists: streams, events, modules, graphs; memory is in the spaces
    std::set<uint64_t> memory;      // addresses of device and pinned allocations
    int streamCount = 0, eventCount = 0, moduleCount = 0, graphCount = 0; // ever made, for names
    const std::shared_ptr<Stream> legacy; // its thread counts in workers

private:
    void reportLeaks();

    std::set<std::shared_ptr<Stream>> all_;
    std::vector<RecordPtr> leaving_; // the ends of streams that were removed with work to do
    CUresult error_ = CUDA_SUCCESS;
    std::string cause_;
    bool delivered_ = false;
};

} // namespace emulator
