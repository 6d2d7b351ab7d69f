// Blocks: the threads of one block as fibers on one thread of the host.
#pragma once
#include <cuda.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "../device.h"
#include "fiber.h"
#include "products.h"
#include "registry.h"

namespace emulator {

constexpr int maxThreads = 1024; // of a block
constexpr int warpLanes = 32;
constexpr size_t maxDynamic = 228 << 10; // bytes of dynamic shared memory that a block can have

// Shape is a launch's geometry.
struct Shape {
    dim3 blocks, threads;
    uint64_t blockCount() const { return static_cast<uint64_t>(blocks.x) * blocks.y * blocks.z; }
    int threadCount() const { return static_cast<int>(threads.x * threads.y * threads.z); }
};

// Failure is why a block, and with it its launch, did not end well.
struct Failure {
    CUresult error = CUDA_SUCCESS;
    const char *kind = nullptr; // of the finding; null when the kernel meant to fail
    std::string text;
};

// Operands holds the operands of one thread's inline PTX, by their numbers.
struct Operands {
    static constexpr int most = 130; // of a product of four warps
    const char *constraints[most];
    void *at[most];
    int count = 0;
};

// Copies are the asynchronous copies of a thread. They are made when it waits for them, which is as late as a GPU may.
class Copies {
public:
    struct Copy {
        char *to;
        const char *from;
        int bytes; // of 16; the others become zeros
    };
    void clear() { pending_.clear(), groups_.clear(); }
    void add(const Copy &copy) { pending_.push_back(copy); }
    void commit() { groups_.push_back(pending_.size()); }
    // Hands make the copies of all groups but the latest so many.
    template <class F> void await(size_t left, F make);

private:
    std::vector<Copy> pending_;
    std::vector<size_t> groups_; // where each ends
};

// Block runs one block after the other. Each thread of the host has its own; it keeps its stacks.
//
// A fiber runs thread after thread of the block until one has to wait. Only then it is that thread's own. Another fiber
// goes on with the threads that have not started. So a block whose threads never wait needs one fiber. Fibers change
// places only in waits.
//
// 1. Every thread is not started, or running, ready, waiting (for the block or for its warp), or finished.
// 2. A wait for the block ends when all of its threads wait for it, one for a warp when all lanes do.
// 3. When no thread is running, ready or not started and one waits, they wait for ever: that is an error.
class Block {
public:
    Block();
    ~Block();
    Block(const Block &) = delete;

    // The block that runs on this thread of the host; null outside kernels.
    static Block *running();
    static Block &ofThisThread();

    // Runs one block of the kernel. When it fails, it is abandoned.
    Failure run(const Kernel &kernel, const void *argument, const Shape &shape, uint64_t index, size_t dynamic);

    // Kernels call these functions: see device.h.
    void syncThreads(const char *file, int line);
    void syncWarp(unsigned mask, const char *file, int line);
    uint64_t exchange(unsigned mask, uint64_t value, int source, const char *file, int line);
    unsigned ballot(unsigned mask, bool predicate, const char *file, int line);
    void trap(const char *file, int line);

    // Instructions need these functions (see instruction.cc). For gather, the lanes of the warp wait for each other.
    // The lane that comes last gets the operands of all lanes; the others get null.
    const Operands *const *gather(const Operands &operands, const char *file, int line);
    // The running thread touches bytes at once, at an address of dynamic shared memory.
    void touchShared(uint32_t address, unsigned bytes, bool write, const std::string &what);
    void copyAsync(uint32_t to, uint64_t from, int64_t bytes, const std::string &what);
    void commitCopies() { copies_[thread_].commit(); }
    void awaitCopies(int64_t left);
    void fenceProxy() { products_.fenceProxy(thread_); }
    // The running thread is the last one of its warp that has come to the instruction.
    void fenceProducts() { products_.fence(warp()); }
    void beginProduct(const Product &product, const std::string &what);
    void commitProducts() { products_.commit(warp()); }
    void awaitProducts(int64_t left);
    // The memory at an address of shared memory, as instructions take it.
    static char *sharedAt(uint32_t address) { return static_cast<char *>(plimsollHere.shared) + address - PLIMSOLL_SHARED_BEGIN; }

    // Ends the block: the running thread never continues.
    void fail(CUresult error, const char *kind, const std::string &what);

    int thread() const { return thread_; }
    int warp() const { return thread_ / warpLanes; }
    const Kernel &kernel() const { return *kernel_; }
    // How often the block, and the running thread's warp, have synchronized their memory.
    uint32_t epoch() const { return epoch_; }
    uint32_t warpEpoch() const { return warps_[thread_ / warpLanes].epoch; }

    bool isPrivate(uint64_t address) const;
    std::string nameOf(int thread) const { return threadName(thread, shape_); }
    static std::string threadName(int thread, const Shape &shape);

private:
    enum class State : uint8_t { fresh, running, ready, waitsForBlock, waitsForWarp, finished };

    // Place is a line of a kernel.
    struct Place {
        const char *file = nullptr;
        int line = 0;
        std::string text() const;
    };

    struct Thread {
        State state = State::fresh;
        int fiber = -1;
        Place waits; // where, when it waits
    };

    struct Warp {
        uint64_t values[2][warpLanes]; // of this exchange and of the last one, which slow lanes may still read
        int arrived = 0, lanes = 0;
        unsigned round = 0;
        uint32_t epoch = 0;
        int last = -1; // thread that came last to the latest exchange
        Place first;   // of the lane that came first
    };

    static void runThreads(void *self);
    void reset();
    void setShape(const Shape &shape);
    void enter(int thread);
    void wait(State why, const Place &where);
    void release(State why, int first, int end);
    void resumeNext();
    int takeFiber();
    void start(int fiber);
    unsigned joinWarp(unsigned mask, uint64_t value, const char *file, int line, bool memory);
    void checkPlace(const Place &first, const Place &here, const char *what);
    std::string describeDeadlock() const;

    const Kernel *kernel_ = nullptr;
    const void *argument_ = nullptr;
    Shape shape_{};
    std::vector<uint3> coordinates_; // of the threads
    std::vector<char> shared_;       // dynamic shared memory
    size_t dynamic_ = 0;             // bytes of it that this launch has
    std::vector<Copies> copies_;     // of the threads
    Products products_;

    Stacks stacks_;
    Fiber host_; // the thread that calls run
    std::vector<Fiber> fibers_;
    std::vector<int> freeFibers_;
    int prepared_ = 0; // fibers below this index run or park in runThreads
    int fiber_ = -1;   // the running one

    std::vector<Thread> threads_;
    std::vector<Warp> warps_;
    std::vector<int> ready_; // a ring
    int readyHead_ = 0, readyCount_ = 0;
    int next_ = 0, finished_ = 0, arrived_ = 0, thread_ = -1;
    uint32_t epoch_ = 0;
    Place barrier_; // of the thread that came to it first
    Failure failure_;
};

} // namespace emulator
