// cuStream*, cuEvent*, cuLaunchHostFunc: streams and events.
#include <algorithm>
#include <chrono>
#include <thread>

#include "api.h"
#include "event.h"

using namespace emulator;

namespace {

CUresult create(const char *name, CUstream *handle, unsigned flags, int priority) {
    return call(name, Needs::context, [&](Call &c) {
        if (flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
        const std::string text = "stream " + std::to_string(++c.context->streamCount);
        const auto stream = Stream::make(*c.context, flags, text);
        stream->priority = priority;
        c.context->add(stream);
        c.context->held.insert(text);
        *handle = reinterpret_cast<CUstream>(stream.get());
        return CUDA_SUCCESS;
    });
}

template <class Body> CUresult ofStream(const char *name, CUstream handle, Body body) {
    return call(name, Needs::context, [&](Call &c) {
        const auto stream = c.context->stream(handle);
        return stream ? body(c, *stream) : CUDA_ERROR_INVALID_HANDLE;
    });
}

template <class Body> CUresult ofEvent(const char *name, CUevent handle, Body body) {
    return call(name, Needs::context, [&](Call &c) {
        const auto event = driver().events.find(handle);
        return event ? body(c, *event) : CUDA_ERROR_INVALID_HANDLE;
    });
}

// A wait for, or a question about, a stream that captures is an error that ends the capture.
CUresult refuseCapturing(const Call &c, const Stream &stream) {
    if (!stream.capture) return c.unsafe();
    stream.capture->invalidate();
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult record(Issue &i, const std::shared_ptr<Event> &event, bool external) {
    if (&i.stream->context() != event->context) return CUDA_ERROR_INVALID_HANDLE;
    if (const CUresult refused = i.checkCapture()) return refused;
    Task task;
    task.what = "record of " + event->name;
    if (!i.stream->capture) {
        i.orderDefault();
        event->set(i.stream->push(std::move(task)));
    } else if (external) {
        i.stream->capture->add(*i.stream, std::move(task), CU_GRAPH_NODE_TYPE_EVENT_RECORD).records = event;
    } else {
        event->isCaptured = true;
        event->capture = i.stream->capture;
        event->captured = i.stream->captured;
    }
    return CUDA_SUCCESS;
}

// A stream that waits for a captured event takes part in that capture from then on.
CUresult waitCaptured(Stream &stream, const Event &event) {
    const std::shared_ptr<Capture> capture = event.capture.lock();
    if (!capture) return CUDA_ERROR_CAPTURED_EVENT;
    if (capture->invalid()) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (&stream == stream.context().legacy.get()) {
        capture->invalidate();
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (stream.capture && stream.capture != capture) {
        capture->invalidate();
        stream.capture->invalidate();
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (!stream.capture) {
        stream.capture = capture;
        capture->join(stream.shared_from_this());
    }
    for (Node *node : event.captured)
        if (std::find(stream.captured.begin(), stream.captured.end(), node) == stream.captured.end())
            stream.captured.push_back(node);
    return CUDA_SUCCESS;
}

CUresult wait(Issue &i, const std::shared_ptr<Event> &event, bool external) {
    Stream &stream = *i.stream;
    if (!external && event->isCaptured) return waitCaptured(stream, *event);
    if (const CUresult refused = i.checkCapture()) return refused;
    if (stream.capture && !external) {
        stream.capture->invalidate();
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (stream.capture) {
        Task task;
        task.what = "wait for " + event->name;
        stream.capture->add(stream, std::move(task), CU_GRAPH_NODE_TYPE_WAIT_EVENT).awaits = event;
        return CUDA_SUCCESS;
    }
    stream.waitFor(event->record);
    return CUDA_SUCCESS;
}

} // namespace

API(cuStreamCreate, CUstream *stream, unsigned flags) { return create(__func__, stream, flags, 0); }

API(cuStreamCreateWithPriority, CUstream *stream, unsigned flags, int priority) {
    return create(__func__, stream, flags, priority > 0 ? 0 : priority < -5 ? -5 : priority);
}

API(cuStreamDestroy, CUstream handle) {
    return call(__func__, Needs::release, [&](Call &c) {
        const auto stream = c.context->stream(handle);
        if (!stream || stream == stream->context().legacy) return CUDA_ERROR_INVALID_HANDLE;
        if (stream->capture) stream->capture->invalidate();
        stream->context().held.erase(stream->name());
        stream->context().remove(stream);
        return CUDA_SUCCESS;
    });
}

API(cuStreamGetFlags, CUstream handle, unsigned *flags) {
    return ofStream(__func__, handle, [&](Call &, Stream &stream) {
        *flags = stream.flags();
        return CUDA_SUCCESS;
    });
}

API(cuStreamGetPriority, CUstream handle, int *priority) {
    return ofStream(__func__, handle, [&](Call &, Stream &stream) {
        *priority = stream.priority;
        return CUDA_SUCCESS;
    });
}

API(cuStreamQuery, CUstream handle) {
    return ofStream(__func__, handle, [&](Call &c, Stream &stream) {
        if (const CUresult refused = refuseCapturing(c, stream)) return refused;
        if (!stream.idle()) return CUDA_ERROR_NOT_READY;
        if (stream.tail()) driver().learn(stream.tail());
        return c.outcome();
    });
}

API(cuStreamSynchronize, CUstream handle) {
    return ofStream(__func__, handle, [&](Call &c, Stream &stream) {
        if (const CUresult refused = refuseCapturing(c, stream)) return refused;
        const auto keep = stream.shared_from_this();
        if (keep == keep->context().legacy) {
            const Issue legacy(c, nullptr);
            legacy.orderDefault();
        }
        driver().await(c.lock, RecordPtr(stream.tail())); // another thread may issue more meanwhile
        return stream.context().error();
    });
}

API(cuStreamWaitEvent, CUstream handle, CUevent event, unsigned flags) {
    return issue(__func__, handle, [&](Issue &i) {
        const auto e = driver().events.find(event);
        if (!e) return CUDA_ERROR_INVALID_HANDLE;
        return wait(i, e, (flags & CU_EVENT_WAIT_EXTERNAL) != 0);
    });
}

API(cuLaunchHostFunc, CUstream handle, CUhostFn function, void *data) {
    return issue(__func__, handle, [&](Issue &i) {
        if (!function) return CUDA_ERROR_INVALID_VALUE;
        Task task;
        task.kind = Task::host;
        task.what = "host function";
        task.run = [=] {
            function(data);
            return CUDA_SUCCESS;
        };
        return i.push(std::move(task), CU_GRAPH_NODE_TYPE_HOST);
    });
}

// A wait for a word of page-locked memory, which the host writes. What the host has done before is then done for the stream.
API(cuStreamWaitValue32, CUstream handle, CUdeviceptr address, cuuint32_t value, unsigned flags) {
    return issue(__func__, handle, [&](Issue &i) {
        Allocation a;
        if (!driver().pinned.find(address, &a) || address % 4 != 0 || flags > CU_STREAM_WAIT_VALUE_AND) return CUDA_ERROR_INVALID_VALUE;
        if (i.stream->capture) return CUDA_ERROR_NOT_SUPPORTED;
        Task task;
        task.what = "wait for a value";
        task.touches = {address};
        task.run = [=, context = i.call.context] {
            const auto *const word = reinterpret_cast<const uint32_t *>(address);
            for (int looks = 0;; looks++) {
                const uint32_t now = __atomic_load_n(word, __ATOMIC_ACQUIRE);
                const bool there = flags == CU_STREAM_WAIT_VALUE_GEQ ? static_cast<int32_t>(now - value) >= 0
                                 : flags == CU_STREAM_WAIT_VALUE_EQ  ? now == value
                                                                     : (now & value) != 0;
                if (there) return CUDA_SUCCESS;
                if (looks % 64 == 63) {
                    const std::lock_guard<std::mutex> guard(driver().mutex);
                    if (context->dead()) return CUDA_SUCCESS; // nobody waits for its streams
                }
                std::this_thread::sleep_for(std::chrono::microseconds(20));
            }
        };
        return i.push(std::move(task), CU_GRAPH_NODE_TYPE_EMPTY);
    });
}

API(cuEventCreate, CUevent *handle, unsigned flags) {
    return call(__func__, Needs::context, [&](Call &c) {
        if ((flags & CU_EVENT_INTERPROCESS) != 0) return CUDA_ERROR_NOT_SUPPORTED;
        const auto event = std::make_shared<Event>();
        event->context = c.context, event->flags = flags;
        event->name = "event " + std::to_string(++c.context->eventCount);
        c.context->held.insert(event->name);
        *handle = reinterpret_cast<CUevent>(driver().events.add(event));
        return CUDA_SUCCESS;
    });
}

API(cuEventDestroy, CUevent handle) {
    return call(__func__, Needs::release, [&](Call &) {
        const auto event = driver().events.remove(handle);
        if (!event) return CUDA_ERROR_INVALID_HANDLE;
        event->context->held.erase(event->name);
        return CUDA_SUCCESS;
    });
}

API(cuEventRecordWithFlags, CUevent event, CUstream handle, unsigned flags) {
    return issue(__func__, handle, [&](Issue &i) {
        const auto e = driver().events.find(event);
        if (!e) return CUDA_ERROR_INVALID_HANDLE;
        return record(i, e, (flags & CU_EVENT_RECORD_EXTERNAL) != 0);
    });
}

API(cuEventRecord, CUevent event, CUstream handle) {
    return issue(__func__, handle, [&](Issue &i) {
        const auto e = driver().events.find(event);
        return e ? record(i, e, false) : CUDA_ERROR_INVALID_HANDLE;
    });
}

API(cuEventQuery, CUevent handle) {
    return ofEvent(__func__, handle, [&](Call &c, Event &event) {
        if (event.isCaptured) return CUDA_ERROR_CAPTURED_EVENT;
        if (const CUresult refused = c.unsafe()) return refused;
        if (!event.record) return CUDA_SUCCESS;
        if (!event.record->done) return CUDA_ERROR_NOT_READY;
        driver().learn(event.record);
        return event.context->error();
    });
}

API(cuEventSynchronize, CUevent handle) {
    return ofEvent(__func__, handle, [&](Call &c, Event &event) {
        if (event.isCaptured) return CUDA_ERROR_CAPTURED_EVENT;
        if (const CUresult refused = c.unsafe()) return refused;
        Context *const context = event.context;
        driver().await(c.lock, RecordPtr(event.record));
        return context->error();
    });
}

API(cuEventElapsedTime, float *milliseconds, CUevent start, CUevent end) {
    return ofEvent(__func__, start, [&](Call &c, Event &from) {
        const auto to = driver().events.find(end);
        if (!to || !from.record || !to->record || from.isCaptured || to->isCaptured) return CUDA_ERROR_INVALID_HANDLE;
        if (((from.flags | to->flags) & CU_EVENT_DISABLE_TIMING) != 0) return CUDA_ERROR_INVALID_HANDLE;
        if (!from.record->done || !to->record->done) return CUDA_ERROR_NOT_READY;
        *milliseconds = static_cast<float>((to->record->time - from.record->time) * 1e3);
        return c.outcome();
    });
}
