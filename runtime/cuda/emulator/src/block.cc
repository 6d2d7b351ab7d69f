#include "block.h"

#include <cstring>

#include "checks.h"
#include "findings.h"

__thread PlimsollHere plimsollHere;

namespace emulator {

namespace {

thread_local Block *current = nullptr;

} // namespace

Block::Block()
    : copies_(maxThreads), stacks_(maxThreads), fibers_(maxThreads), threads_(maxThreads),
      warps_(maxThreads / warpLanes), ready_(maxThreads) {
    shared_.resize(maxDynamic + 1024);
}

Block::~Block() = default;

Block *Block::running() { return current; }

Block &Block::ofThisThread() {
    static thread_local std::unique_ptr<Block> block;
    if (!block) block = std::make_unique<Block>();
    return *block;
}

Failure Block::run(const Kernel &kernel, const void *argument, const Shape &shape, uint64_t index, size_t dynamic) {
    kernel_ = &kernel, argument_ = argument, dynamic_ = dynamic;
    setShape(shape);
    reset();
    plimsollHere.block = {static_cast<unsigned>(index % shape.blocks.x),
                          static_cast<unsigned>(index / shape.blocks.x % shape.blocks.y),
                          static_cast<unsigned>(index / shape.blocks.x / shape.blocks.y)};
    char *shared = shared_.data() + (1024 - reinterpret_cast<uintptr_t>(shared_.data()) % 1024);
    plimsollHere.shared = shared;
    current = this;
    checks::beginBlock(shared, dynamic, index);
    start(takeFiber());
    current = nullptr;
    if (failure_.error) prepared_ = 0, freeFibers_.clear(); // the fibers stay where they waited: start them anew
    return failure_;
}

void Block::setShape(const Shape &shape) {
    plimsollHere.threads = shape.threads, plimsollHere.blocks = shape.blocks;
    const dim3 n = shape.threads, was = shape_.threads;
    shape_ = shape;
    if (n.x == was.x && n.y == was.y && n.z == was.z) return;
    coordinates_.clear();
    for (unsigned z = 0; z < n.z; z++)
        for (unsigned y = 0; y < n.y; y++)
            for (unsigned x = 0; x < n.x; x++) coordinates_.push_back({x, y, z});
}

void Block::reset() {
    const int count = shape_.threadCount();
    for (int t = 0; t < count; t++) threads_[t] = Thread(), copies_[t].clear();
    for (int w = 0; w * warpLanes < count; w++) {
        Warp &warp = warps_[w];
        warp.arrived = 0, warp.epoch = 0;
        warp.lanes = count - w * warpLanes < warpLanes ? count - w * warpLanes : warpLanes;
    }
    products_.reset((count + warpLanes - 1) / warpLanes, dynamic_);
    readyHead_ = readyCount_ = next_ = finished_ = arrived_ = 0;
    epoch_ = 0, thread_ = -1, fiber_ = -1;
    failure_ = Failure();
}

// The body of every fiber: run threads while there are fresh ones, then park until the fiber is needed again.
void Block::runThreads(void *self) {
    Block &block = *static_cast<Block *>(self);
    for (;;) {
        while (block.next_ < block.shape_.threadCount()) {
            block.enter(block.next_++);
            block.kernel_->run(block.argument_);
            block.threads_[block.thread_].state = State::finished;
            block.finished_++;
        }
        if (!block.stacks_.intact(block.fiber_)) block.fail(CUDA_ERROR_HARDWARE_STACK_ERROR, Finding::bounds, "more than 64 KiB of stack");
        block.freeFibers_.push_back(block.fiber_);
        block.resumeNext();
    }
}

void Block::enter(int thread) {
    thread_ = thread;
    Thread &t = threads_[thread];
    t.state = State::running;
    t.fiber = fiber_;
    plimsollHere.thread = coordinates_[thread];
}

int Block::takeFiber() {
    if (!freeFibers_.empty()) {
        const int fiber = freeFibers_.back();
        freeFibers_.pop_back();
        return fiber;
    }
    const int fiber = prepared_++;
    stacks_.guard(fiber);
    fibers_[fiber].prepare(stacks_.at(fiber), Stacks::bytes, runThreads, this);
    return fiber;
}

// Continues a fiber; the running one (or the host's thread) stops here until somebody continues it.
void Block::start(int fiber) {
    Fiber &from = fiber_ < 0 ? host_ : fibers_[fiber_];
    if (fiber == fiber_) return;
    fiber_ = fiber;
    from.switchTo(fiber < 0 ? host_ : fibers_[fiber]);
}

// Gives the processor to a ready thread, to a fresh one, or, when there is neither, back to run.
void Block::resumeNext() {
    if (failure_.error) return start(-1);
    if (readyCount_ > 0) {
        const int thread = ready_[readyHead_];
        readyHead_ = (readyHead_ + 1) % maxThreads, readyCount_--;
        const int fiber = threads_[thread].fiber;
        thread_ = thread;
        threads_[thread].state = State::running;
        plimsollHere.thread = coordinates_[thread];
        return start(fiber);
    }
    if (next_ < shape_.threadCount()) return start(takeFiber());
    if (finished_ < shape_.threadCount())
        failure_ = {CUDA_ERROR_LAUNCH_TIMEOUT, Finding::barrier, describeDeadlock()};
    start(-1);
}

void Block::wait(State why, const Place &where) {
    Thread &t = threads_[thread_];
    t.state = why;
    t.waits = where;
    resumeNext();
}

// Makes those of the threads [first, end) ready that wait for this, except the running one.
void Block::release(State why, int first, int end) {
    for (int t = first; t < end; t++) {
        if (threads_[t].state != why) continue;
        threads_[t].state = State::ready;
        ready_[(readyHead_ + readyCount_++) % maxThreads] = t;
    }
}

void Block::syncThreads(const char *file, int line) {
    const Place here{file, line};
    if (arrived_++ == 0) barrier_ = here;
    checkPlace(barrier_, here, "__syncthreads");
    if (arrived_ < shape_.threadCount()) return wait(State::waitsForBlock, here);
    arrived_ = 0;
    epoch_++;
    release(State::waitsForBlock, 0, shape_.threadCount());
}

// Waits for all lanes of the running thread's warp, each with a value. It returns the index of the round's values.
unsigned Block::joinWarp(unsigned mask, uint64_t value, const char *file, int line, bool memory) {
    const int first = thread_ / warpLanes * warpLanes;
    Warp &warp = warps_[thread_ / warpLanes];
    const Place here{file, line};
    const unsigned all = warp.lanes == warpLanes ? ~0u : (1u << warp.lanes) - 1;
    if ((mask & all) != all) 
        fail(CUDA_ERROR_NOT_SUPPORTED, Finding::barrier,
             "a warp operation at " + here.text() + " names only some lanes, which is not emulated");
    const unsigned slot = warp.round & 1;
    warp.values[slot][thread_ - first] = value;
    if (warp.arrived++ == 0) warp.first = here;
    checkPlace(warp.first, here, "a warp operation");
    if (warp.arrived < warp.lanes) {
        wait(State::waitsForWarp, here);
        return slot;
    }
    warp.arrived = 0;
    warp.last = thread_;
    warp.round++;
    if (memory) warp.epoch++;
    release(State::waitsForWarp, first, first + warp.lanes);
    return slot;
}

void Block::syncWarp(unsigned mask, const char *file, int line) { joinWarp(mask, 0, file, line, true); }

uint64_t Block::exchange(unsigned mask, uint64_t value, int source, const char *file, int line) {
    const unsigned slot = joinWarp(mask, value, file, line, false);
    const Warp &warp = warps_[thread_ / warpLanes];
    // A lane that does not exist has no value: CUDA leaves it undefined, here it is easy to see.
    return source < warp.lanes ? warp.values[slot][source] : ~uint64_t{0};
}

unsigned Block::ballot(unsigned mask, bool predicate, const char *file, int line) {
    const unsigned slot = joinWarp(mask, predicate, file, line, false);
    const Warp &warp = warps_[thread_ / warpLanes];
    unsigned bits = 0;
    for (int lane = 0; lane < warp.lanes; lane++) bits |= static_cast<unsigned>(warp.values[slot][lane]) << lane;
    return bits;
}

// Lanes that waited go on when this one waits or ends, so it has their operands for itself until then.
const Operands *const *Block::gather(const Operands &operands, const char *file, int line) {
    const unsigned slot = joinWarp(~0u, reinterpret_cast<uint64_t>(&operands), file, line, false);
    const Warp &warp = warps_[thread_ / warpLanes];
    if (warp.lanes < warpLanes) fail(CUDA_ERROR_NOT_SUPPORTED, Finding::barrier, "an instruction wants whole warps");
    return warp.last == thread_ ? reinterpret_cast<const Operands *const *>(warp.values[slot]) : nullptr;
}

void Block::touchShared(uint32_t address, unsigned bytes, bool write, const std::string &what) {
    const uint32_t offset = address - PLIMSOLL_SHARED_BEGIN;
    if (offset % bytes != 0)
        fail(CUDA_ERROR_MISALIGNED_ADDRESS, Finding::bounds, what + " at byte " + std::to_string(offset) + " of shared memory");
    if (offset + uint64_t{bytes} > dynamic_)
        fail(CUDA_ERROR_ILLEGAL_ADDRESS, Finding::bounds,
             what + " touches byte " + std::to_string(offset) + " of " + std::to_string(dynamic_) + " bytes of dynamic shared memory");
    checks::accessHere(reinterpret_cast<uint64_t>(sharedAt(address)), bytes, write);
}

void Block::copyAsync(uint32_t to, uint64_t from, int64_t bytes, const std::string &what) {
    touchShared(to, 16, true, what);
    if (from % 16 != 0 || bytes < 0 || bytes > 16)
        fail(CUDA_ERROR_MISALIGNED_ADDRESS, Finding::bounds, what + " of " + std::to_string(bytes) + " bytes, not from a multiple of 16");
    if (products_.isRead(static_cast<size_t>(to - PLIMSOLL_SHARED_BEGIN) / 16))
        fail(CUDA_ERROR_LAUNCH_FAILED, Finding::instruction, what + " writes to shared memory that a product under way reads");
    if (bytes > 0) checks::accessHere(from, static_cast<unsigned>(bytes), false);
    copies_[thread_].add({sharedAt(to), reinterpret_cast<const char *>(from), static_cast<int>(bytes)});
}

void Block::beginProduct(const Product &product, const std::string &what) {
    if (shape_.threadCount() % (4 * warpLanes) != 0)
        fail(CUDA_ERROR_NOT_SUPPORTED, Finding::instruction, what + " wants whole groups of four warps");
    if (const std::string wrong = product.error(); !wrong.empty()) fail(CUDA_ERROR_LAUNCH_FAILED, Finding::instruction, what + ": " + wrong);
    product.eachVector(warp(), [&](uint32_t address) {
        touchShared(address, 16, false, what);
        return "";
    });
    const std::string wrong = products_.begin(warp(), product);
    if (!wrong.empty()) fail(CUDA_ERROR_LAUNCH_FAILED, Finding::instruction, wrong);
}

void Block::awaitProducts(int64_t left) {
    const std::string wrong = products_.await(warp(), static_cast<size_t>(left), sharedAt(0));
    if (!wrong.empty()) fail(CUDA_ERROR_LAUNCH_FAILED, Finding::instruction, wrong);
}

template <class F> void Copies::await(size_t left, F make) {
    if (groups_.size() <= left) return;
    const size_t done = groups_.size() - left, end = groups_[done - 1];
    for (size_t i = 0; i < end; i++) make(pending_[i]);
    pending_.erase(pending_.begin(), pending_.begin() + end);
    groups_.erase(groups_.begin(), groups_.begin() + done);
    for (size_t &group : groups_) group -= end;
}

void Block::awaitCopies(int64_t left) {
    copies_[thread_].await(static_cast<size_t>(left), [this](const Copies::Copy &c) {
        checks::accessHere(reinterpret_cast<uint64_t>(c.to), 16, true);
        products_.noteWrite(static_cast<size_t>(c.to - sharedAt(PLIMSOLL_SHARED_BEGIN)) / 16, thread_);
        if (c.bytes > 0) memcpy(c.to, c.from, c.bytes);
        memset(c.to + c.bytes, 0, 16 - c.bytes);
    });
}

void Block::trap(const char *file, int line) { 
    fail(CUDA_ERROR_LAUNCH_FAILED, nullptr, "__trap at " + Place{file, line}.text());
 }

void Block::fail(CUresult error, const char *kind, const std::string &what) {
    failure_ = {error, kind, threadName(thread_, shape_) + ": " + what};
    start(-1);
}

// Two places of one barrier mean that threads took different ways: undefined in CUDA, and often a deadlock.
void Block::checkPlace(const Place &first, const Place &here, const char *what) {
    if (first.line == here.line) return;
    findings().add(Finding::barrier, std::string("divergent ") + what + " in kernel " + kernel_->name + ": " +
                                         threadName(thread_, shape_) + " waits at " + here.text() +
                                         ", another thread at " + first.text());
}

std::string Block::Place::text() const {
    const std::string path = file ? file : "?";
    return path.substr(path.rfind('/') + 1) + ":" + std::to_string(line);
}

// Private memory: the running fiber's stack, the kernel's argument, threadIdx and its like.
bool Block::isPrivate(uint64_t address) const {
    const auto within = [&](const void *p, size_t bytes) { return address - reinterpret_cast<uint64_t>(p) < bytes; };
    return within(stacks_.at(fiber_), Stacks::bytes) || within(argument_, kernel_->argument) ||
           within(&plimsollHere, sizeof plimsollHere);
}

std::string Block::threadName(int thread, const Shape &shape) {
    const int x = static_cast<int>(shape.threads.x), y = static_cast<int>(shape.threads.y);
    const uint3 &b = plimsollHere.block;
    return "thread (" + std::to_string(thread % x) + "," + std::to_string(thread / x % y) + "," +
           std::to_string(thread / x / y) + ") of block (" + std::to_string(b.x) + "," + std::to_string(b.y) + "," +
           std::to_string(b.z) + ")";
}

std::string Block::describeDeadlock() const {
    int waiting = 0, example = -1;
    for (int t = 0; t < shape_.threadCount(); t++) {
        if (threads_[t].state == State::finished) continue;
        waiting++;
        if (example < 0) example = t;
    }
    const Thread &t = threads_[example];
    return "deadlock: " + std::to_string(waiting) + " threads wait for ever, " + threadName(example, shape_) + " in " +
           (t.state == State::waitsForBlock ? "__syncthreads" : "a warp operation") + " at " + t.waits.text() + "; " +
           std::to_string(finished_) + " threads have finished";
}

} // namespace emulator

using emulator::Block;

void plimsollSyncThreads(const char *file, int line) { Block::running()->syncThreads(file, line); }
void plimsollSyncWarp(unsigned mask, const char *file, int line) { Block::running()->syncWarp(mask, file, line); }
uint64_t plimsollShuffle(unsigned mask, uint64_t value, int source, const char *file, int line) {
    return Block::running()->exchange(mask, value, source, file, line);
}
unsigned plimsollBallot(unsigned mask, int predicate, const char *file, int line) {
    return Block::running()->ballot(mask, predicate != 0, file, line);
}
int plimsollLane(void) { return Block::running()->thread() % emulator::warpLanes; }
void plimsollTrap(const char *file, int line) { Block::running()->trap(file, line); }
