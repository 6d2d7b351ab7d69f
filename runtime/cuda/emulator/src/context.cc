#include "context.h"

#include <utility>

#include "driver.h"
#include "findings.h"
#include "names.h"

namespace emulator {

namespace {

std::string legacyName(const Device &device) { return "the default stream of device " + std::to_string(device.ordinal); }

} // namespace

Context::Context(Device &d, unsigned f, bool p)
    : device(d), flags(f), primary(p), legacy(Stream::make(*this, CU_STREAM_DEFAULT, legacyName(d))) {
    all_.insert(legacy);
    driver().contexts.insert(this);
}

std::shared_ptr<Stream> Context::stream(CUstream handle) {
    if (handle == nullptr || handle == reinterpret_cast<CUstream>(1)) return legacy;
    for (Context *context : driver().contexts)
        for (const auto &stream : context->all_)
            if (stream.get() == reinterpret_cast<Stream *>(handle)) return stream;
    return nullptr;
}

std::vector<std::shared_ptr<Stream>> Context::streams() const { return {all_.begin(), all_.end()}; }

void Context::remove(const std::shared_ptr<Stream> &stream) {
    stream->close();
    if (!stream->idle()) leaving_.push_back(stream->tail());
    all_.erase(stream);
}

bool Context::dead() const { return error() != CUDA_SUCCESS; }

CUresult Context::error() const { return device.lost != CUDA_SUCCESS ? device.lost : error_; }

void Context::die(CUresult error, const std::string &what) {
    if (isLoss(error)) device.lost = error;
    if (error_ != CUDA_SUCCESS) return;
    error_ = error;
    cause_ = what;
}

void Context::synchronize(std::unique_lock<std::mutex> &lock) {
    for (const RecordPtr &tail : std::exchange(leaving_, {})) driver().await(lock, tail);
    for (const auto &stream : streams()) driver().await(lock, RecordPtr(stream->tail()));
}

void Context::finish(std::unique_lock<std::mutex> &lock) {
    synchronize(lock);
    reportLeaks();
    if (error_ != CUDA_SUCCESS && !delivered_)
        findings().add(Finding::ignored, std::string(errorName(error_)) + " of " + cause_ +
                                             " was never reported to the caller: no call but releases came behind it");
}

void Context::close(std::unique_lock<std::mutex> &lock) {
    finish(lock);
    for (const auto &stream : streams()) remove(stream);
    drained.wait(lock, [this] { return workers == 0; });
    driver().contexts.erase(this);
}

void Context::reportLeaks() {
    for (const std::string &name : held)
        findings().add(Finding::leak, name + " of device " + std::to_string(device.ordinal) + " was never destroyed");
    for (const uint64_t address : memory) {
        Space *space = driver().space(address);
        Allocation a;
        if (space && space->find(address, &a)) {
            findings().add(Finding::leak, a.name(space->name()) + " was never freed");
            space->release(address);
        }
    }
    memory.clear();
}

} // namespace emulator
