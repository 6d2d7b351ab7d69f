#include "stream.h"

#include <chrono>
#include <thread>

#include "checks.h"
#include "config.h"
#include "driver.h"

namespace emulator {

thread_local Work currentWork;

Stream::Stream(Context &context, unsigned flags, std::string name)
    : context_(context), flags_(flags), name_(std::move(name)), chance_(config().chaos * 1000003 + party_.id()) {}

std::shared_ptr<Stream> Stream::make(Context &context, unsigned flags, std::string name) {
    std::shared_ptr<Stream> stream(new Stream(context, flags, std::move(name)));
    context.workers++;
    std::thread([held = stream]() mutable { // which keeps nothing of the stream: see work
        work(std::move(held), std::unique_lock<std::mutex>(driver().mutex));
    }).detach();
    return stream;
}

RecordPtr Stream::push(Task task) {
    party_.join(driver().known);
    for (const RecordPtr &wait : task.waits) party_.join(*wait->clock);
    task.record = std::make_shared<Record>();
    task.record->clock = party_.advance();
    for (const uint64_t address : task.touches) driver().touch(address, party_.id(), task);
    task.injected = driver().faults.ofTask(task.kind);
    tail_ = task.record;
    queue_.push_back(std::move(task));
    changed_.notify_one();
    return tail_;
}

void Stream::waitFor(const RecordPtr &record) {
    if (!record) return;
    Task task;
    task.what = "wait";
    task.waits.push_back(record);
    push(std::move(task));
}

void Stream::close() {
    closed_ = true;
    changed_.notify_one();
}

// The thread's body. It drops the stream with the lock held, as the stream's party wants.
void Stream::work(std::shared_ptr<Stream> self, std::unique_lock<std::mutex> lock) {
    for (;;) {
        self->changed_.wait(lock, [&] { return !self->queue_.empty() || self->closed_; });
        if (self->queue_.empty()) break;
        Task task = std::move(self->queue_.front());
        self->queue_.pop_front();
        self->perform(lock, task);
    }
    Context &context = self->context_;
    self.reset();
    context.workers--;
    context.drained.notify_all();
}

void Stream::perform(std::unique_lock<std::mutex> &lock, Task &task) {
    for (const RecordPtr &record : task.waits) record->changed.wait(lock, [&] { return record->done; });
    if (task.run && !context_.dead()) {
        currentWork = {&task, &context_, party_.id(), 0};
        currentWork.operation = checks::operation(task.what, name_, party_.id(), task.record->clock);
        if (task.kind == Task::host) driver().known.join(*task.record->clock); // it may tell the host
        lock.unlock();
        if (config().chaos) delay();
        CUresult result = task.injected ? task.injected : task.run();
        lock.lock();
        if (result != CUDA_SUCCESS) context_.die(result, task.what + " on " + name_);
        task.run = nullptr;
    }
    task.record->time = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    task.record->done = true;
    task.record->changed.notify_all();
}

// Chaos: most tasks start late by a little, some by a lot.
void Stream::delay() {
    const uint64_t dice = chance_();
    const auto most = std::chrono::microseconds(dice % 16 == 0 ? 2000 : 100);
    std::this_thread::sleep_for(most * static_cast<int>(dice >> 32 & 0xff) / 256);
}

} // namespace emulator
