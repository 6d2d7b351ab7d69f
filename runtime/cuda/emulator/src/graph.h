// Graphs: work that was captured from streams, to be launched as one.
#pragma once
#include <cuda.h>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "stream.h"

namespace emulator {

struct Event;

// Node is one task of a graph, with the nodes that it runs behind.
struct Node {
    Task task; // without waits and record
    std::vector<Node *> after;
    int lane = 0;                   // the captured stream that it came from: nodes of one are ordered
    std::shared_ptr<Event> records; // an external event that it records
    std::shared_ptr<Event> awaits;  // an external event that it waits for
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
};

// Graph is the result of a capture.
struct Graph {
    Context *context;
    std::string name;
    std::vector<std::unique_ptr<Node>> nodes; // each behind those that it depends on
    int lanes = 0;
};

// Capture is a capture in progress. It begins with one stream; a stream that waits for an event which was recorded in
// it joins it. It ends in the stream where it began, which must have waited for all work of the others.
class Capture {
public:
    Capture(std::shared_ptr<Stream> origin, CUstreamCaptureMode mode);

    const std::shared_ptr<Stream> origin;
    const CUstreamCaptureMode mode;
    const std::thread::id thread;

    void join(const std::shared_ptr<Stream> &stream);
    // Adds a node behind the stream's last ones.
    Node &add(Stream &stream, Task task, CUgraphNodeType type);
    void invalidate() { invalid_ = true; }
    bool invalid() const { return invalid_; }
    // Releases the streams. The graph is null, with the error, when the capture is no graph.
    CUresult end(std::unique_ptr<Graph> *graph);

private:
    bool joined() const;

    std::unique_ptr<Graph> graph_;
    std::vector<std::shared_ptr<Stream>> streams_; // a lane each
    bool invalid_ = false;
};

// GraphExec is a graph that can be launched. Each lane is a stream of its own, so a launch is ordered by its
// dependencies and by nothing else.
class GraphExec {
public:
    GraphExec(const Graph &graph, std::string name);
    ~GraphExec(); // the lanes end when their work has
    // Issues the graph's work behind what `stream`, and the launch before, have; it returns the point behind it.
    void launch(Stream &stream);

    Context *const context;
    const std::string name;

private:
    struct Step {
        Task task;
        std::vector<size_t> after; // steps of other lanes
        int lane;
        std::shared_ptr<Event> records, awaits;
    };

    void issue(Step &step, std::vector<RecordPtr> &records);

    std::vector<Step> steps_;
    std::vector<std::shared_ptr<Stream>> lanes_;
    RecordPtr last_; // the end of the launch before
};

} // namespace emulator
