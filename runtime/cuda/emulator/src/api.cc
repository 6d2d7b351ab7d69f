#include "api.h"

#include <cstdio>

#include "config.h"
#include "findings.h"

namespace emulator {

std::vector<Context *> &contextStack() {
    static thread_local std::vector<Context *> stack;
    return stack;
}

CUstreamCaptureMode &captureMode() {
    static thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    return mode;
}

Call::Call(const char *n, Needs needs) : name(n), lock(driver().mutex), needs_(needs) {
    if (needs == Needs::nothing || needs == Needs::init || contextStack().empty()) return;
    context = contextStack().back();
    if (driver().contexts.count(context) == 0) context = nullptr;
}

CUresult Call::begin() {
    if (const CUresult injected = driver().faults.ofCall(name)) {
        if (context && isSticky(injected)) context->die(injected, name);
        return injected;
    }
    if (needs_ == Needs::nothing) return CUDA_SUCCESS;
    if (!driver().initialized) return CUDA_ERROR_NOT_INITIALIZED;
    if (needs_ == Needs::init) return CUDA_SUCCESS;
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (needs_ == Needs::release) return CUDA_SUCCESS;
    if (config().strict && findings().count() > 0) {
        fprintf(stderr, "emulated GPU: %s refused because of findings:\n%s", name.c_str(), findings().text().c_str());
        return CUDA_ERROR_UNKNOWN;
    }
    return context->error();
}

CUresult Call::end(CUresult result) {
    if (needs_ == Needs::release && result == CUDA_SUCCESS && context) return context->error();
    if (needs_ == Needs::context && context && result != CUDA_SUCCESS && result == context->error())
        context->delivered();
    return result;
}

CUresult Call::unsafe() const {
    const CUstreamCaptureMode mode = captureMode();
    if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
    for (const auto &weak : driver().captures) {
        const std::shared_ptr<Capture> capture = weak.lock();
        if (!capture || capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
        const bool own = capture->thread == std::this_thread::get_id();
        const bool global =
            mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (!own && !global) continue;
        capture->invalidate();
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return CUDA_SUCCESS;
}

Issue::Issue(Call &c, CUstream handle) : call(c), stream(c.context->stream(handle)) {
    if (!stream || stream->refused.empty()) return;
    findings().add(Finding::ignored, stream->refused + ", and the program went on with " + call.name + " on " +
                                         stream->name());
    stream->refused.clear();
}

CUresult Issue::end(CUresult result) {
    if (stream && result != CUDA_SUCCESS) {
        const char *error = errorName(result);
        stream->refused = call.name + " on " + stream->name() + " returned " + (error ? error : "an error");
    }
    return result;
}

CUresult Issue::checkCapture() const {
    if (stream->capture) return stream->capture->invalid() ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
    if (stream != stream->context().legacy) return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    for (const auto &other : stream->context().streams()) {
        if (!other->capture || !other->blocking()) continue;
        other->capture->invalidate();
        result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    return result;
}

static void follow(Stream &stream, const Stream &before) {
    if (!before.tail()) return;
    if (before.idle())
        stream.join(*before.tail()->clock);
    else
        stream.waitFor(before.tail());
}

void Issue::orderDefault() const {
    const auto &legacy = stream->context().legacy;
    if (!stream->blocking()) return;
    if (stream != legacy) return follow(*stream, *legacy);
    for (const auto &other : stream->context().streams())
        if (other != legacy && other->blocking()) follow(*legacy, *other);
}

CUresult Issue::push(Task task, CUgraphNodeType type) {
    if (const CUresult refused = checkCapture()) return refused;
    if (stream->capture) {
        stream->capture->add(*stream, std::move(task), type);
        return CUDA_SUCCESS;
    }
    orderDefault();
    stream->push(std::move(task));
    return CUDA_SUCCESS;
}

} // namespace emulator
