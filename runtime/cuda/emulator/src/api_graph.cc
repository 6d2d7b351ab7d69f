// cuStreamBeginCapture and what follows, cuGraph*: capture and graphs.
#include <algorithm>

#include "api.h"

using namespace emulator;

namespace {

// Forgets captures that have ended.
void sweep() {
    auto &all = driver().captures;
    all.erase(std::remove_if(all.begin(), all.end(), [](const auto &weak) { return weak.expired(); }), all.end());
}

CUresult endCapture(Call &c, Stream &stream, CUgraph *handle) {
    *handle = nullptr;
    const std::shared_ptr<Capture> capture = stream.capture;
    if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin.get() != &stream) {
        capture->invalidate();
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != std::this_thread::get_id())
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    std::unique_ptr<Graph> graph;
    if (const CUresult refused = capture->end(&graph)) return refused;
    graph->name = "graph " + std::to_string(++c.context->graphCount);
    graph->context->held.insert(graph->name);
    *handle = reinterpret_cast<CUgraph>(driver().graphs.add(std::move(graph)));
    return CUDA_SUCCESS;
}

} // namespace

API(cuStreamBeginCapture, CUstream handle, CUstreamCaptureMode mode) {
    return call(__func__, Needs::context, [&](Call &c) {
        const auto stream = c.context->stream(handle);
        if (!stream) return CUDA_ERROR_INVALID_HANDLE;
        if (stream == stream->context().legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        if (stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
        stream->capture = std::make_shared<Capture>(stream, mode);
        stream->capture->join(stream);
        driver().captures.push_back(stream->capture);
        return CUDA_SUCCESS;
    });
}

API(cuStreamEndCapture, CUstream handle, CUgraph *graph) {
    return call(__func__, Needs::context, [&](Call &c) {
        const auto stream = c.context->stream(handle);
        if (!stream) return CUDA_ERROR_INVALID_HANDLE;
        const CUresult result = endCapture(c, *stream, graph);
        sweep();
        return result;
    });
}

API(cuStreamIsCapturing, CUstream handle, CUstreamCaptureStatus *status) {
    return call(__func__, Needs::context, [&](Call &c) {
        const auto stream = c.context->stream(handle);
        if (!stream) return CUDA_ERROR_INVALID_HANDLE;
        *status = !stream->capture             ? CU_STREAM_CAPTURE_STATUS_NONE
                  : stream->capture->invalid() ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                               : CU_STREAM_CAPTURE_STATUS_ACTIVE;
        return CUDA_SUCCESS;
    });
}

API(cuGraphDestroy, CUgraph handle) {
    return call(__func__, Needs::release, [&](Call &) {
        const auto graph = driver().graphs.remove(handle);
        if (!graph) return CUDA_ERROR_INVALID_VALUE;
        graph->context->held.erase(graph->name);
        return CUDA_SUCCESS;
    });
}

API(cuGraphInstantiate, CUgraphExec *handle, CUgraph graph, unsigned long long flags) {
    return call(__func__, Needs::context, [&](Call &c) {
        const auto g = driver().graphs.find(graph);
        if (!g || flags != 0) return CUDA_ERROR_INVALID_VALUE;
        const std::string name = "executable graph " + std::to_string(++c.context->graphCount);
        g->context->held.insert(name);
        *handle = reinterpret_cast<CUgraphExec>(driver().execs.add(std::make_shared<GraphExec>(*g, name)));
        return CUDA_SUCCESS;
    });
}

API(cuGraphExecDestroy, CUgraphExec handle) {
    return call(__func__, Needs::release, [&](Call &) {
        const auto exec = driver().execs.remove(handle);
        if (!exec) return CUDA_ERROR_INVALID_VALUE;
        exec->context->held.erase(exec->name);
        return CUDA_SUCCESS;
    });
}

API(cuGraphLaunch, CUgraphExec handle, CUstream stream) {
    return issue(__func__, stream, [&](Issue &i) {
        const auto exec = driver().execs.find(handle);
        if (!exec) return CUDA_ERROR_INVALID_VALUE;
        if (i.stream->capture) return CUDA_ERROR_NOT_SUPPORTED; // a child graph
        if (const CUresult refused = i.checkCapture()) return refused;
        i.orderDefault();
        exec->launch(*i.stream);
        return CUDA_SUCCESS;
    });
}

API(cuGraphUpload, CUgraphExec handle, CUstream stream) {
    return issue(__func__, stream, [&](Issue &) {
        return driver().execs.find(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
}

API(cuGraphGetNodes, CUgraph handle, CUgraphNode *nodes, size_t *count) {
    return call(__func__, Needs::context, [&](Call &) {
        const auto graph = driver().graphs.find(handle);
        if (!graph) return CUDA_ERROR_INVALID_VALUE;
        const size_t room = *count;
        *count = graph->nodes.size();
        for (size_t i = 0; nodes && i < std::min(room, *count); i++)
            nodes[i] = reinterpret_cast<CUgraphNode>(graph->nodes[i].get());
        return CUDA_SUCCESS;
    });
}

API(cuGraphNodeGetType, CUgraphNode handle, CUgraphNodeType *type) {
    return call(__func__, Needs::context, [&](Call &) {
        CUresult result = CUDA_ERROR_INVALID_VALUE;
        driver().graphs.each([&](const Graph &graph) {
            for (const auto &node : graph.nodes) {
                if (node.get() != reinterpret_cast<Node *>(handle)) continue;
                *type = node->type;
                result = CUDA_SUCCESS;
            }
        });
        return result;
    });
}
