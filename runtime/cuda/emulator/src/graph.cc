#include "graph.h"

#include <algorithm>
#include <set>

#include "driver.h"
#include "event.h"

namespace emulator {

Capture::Capture(std::shared_ptr<Stream> first, CUstreamCaptureMode m)
    : origin(std::move(first)), mode(m), thread(std::this_thread::get_id()), graph_(new Graph) {
    graph_->context = &origin->context();
}

void Capture::join(const std::shared_ptr<Stream> &stream) {
    streams_.push_back(stream);
    stream->captured.clear();
    graph_->lanes++;
}

Node &Capture::add(Stream &stream, Task task, CUgraphNodeType type) {
    graph_->nodes.push_back(std::make_unique<Node>());
    Node &node = *graph_->nodes.back();
    node.task = std::move(task);
    node.type = type;
    node.after = stream.captured;
    const auto same = [&](const std::shared_ptr<Stream> &s) { return s.get() == &stream; };
    node.lane = static_cast<int>(std::find_if(streams_.begin(), streams_.end(), same) - streams_.begin());
    stream.captured = {&node};
    return node;
}

// Reports whether the origin's last nodes stand behind all others, which is what CUDA calls joined.
bool Capture::joined() const {
    std::vector<Node *> todo = origin->captured;
    std::set<Node *> reached(todo.begin(), todo.end());
    while (!todo.empty()) {
        Node *node = todo.back();
        todo.pop_back();
        for (Node *before : node->after)
            if (reached.insert(before).second) todo.push_back(before);
    }
    return reached.size() == graph_->nodes.size();
}

CUresult Capture::end(std::unique_ptr<Graph> *graph) {
    const CUresult result = invalid_    ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                            : !joined() ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                                        : CUDA_SUCCESS;
    for (const auto &stream : streams_) {
        stream->capture.reset();
        stream->captured.clear();
    }
    if (result == CUDA_SUCCESS) *graph = std::move(graph_);
    return result;
}

GraphExec::GraphExec(const Graph &graph, std::string n) : context(graph.context), name(std::move(n)) {
    for (int i = 0; i < graph.lanes; i++) {
        lanes_.push_back(Stream::make(*context, CU_STREAM_NON_BLOCKING, name + ", lane " + std::to_string(i)));
        context->add(lanes_.back());
    }
    std::map<const Node *, size_t> index;
    for (const auto &node : graph.nodes) {
        Step step{node->task, {}, node->lane, node->records, node->awaits};
        for (const Node *before : node->after)
            if (before->lane != node->lane) step.after.push_back(index[before]);
        index[node.get()] = steps_.size();
        steps_.push_back(std::move(step));
    }
}

GraphExec::~GraphExec() {
    for (const auto &lane : lanes_) context->remove(lane);
}

void GraphExec::issue(Step &step, std::vector<RecordPtr> &records) {
    Task task = step.task;
    for (const size_t before : step.after) task.waits.push_back(records[before]);
    if (step.awaits && step.awaits->record) task.waits.push_back(step.awaits->record);
    records.push_back(lanes_[step.lane]->push(std::move(task)));
    if (step.records) step.records->set(records.back());
}

void GraphExec::launch(Stream &stream) {
    stream.waitFor(last_);
    for (const auto &lane : lanes_) lane->waitFor(stream.tail());
    std::vector<RecordPtr> records;
    for (Step &step : steps_) issue(step, records);
    for (const auto &lane : lanes_) stream.waitFor(lane->tail());
    last_ = stream.tail();
}

} // namespace emulator
