#include "processors.h"

#include <thread>

#include "config.h"

namespace emulator {

Processors::Processors(int threads) {
    for (int i = 0; i < threads; i++) std::thread([this] { serve(); }).detach();
}

void Processors::runOnAll(const std::function<void()> &job) {
    Job entry(job);
    {
        const std::lock_guard<std::mutex> guard(mutex_);
        jobs_.push_back(&entry);
    }
    changed_.notify_all();
    job();
    std::unique_lock<std::mutex> lock(mutex_);
    jobs_.remove(&entry);
    entry.left.wait(lock, [&] { return entry.inside == 0; });
}

// A thread enters the oldest job. When one returns from a job, its work has been shared out: nobody enters any more.
void Processors::serve() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return !jobs_.empty(); });
        Job *job = jobs_.front();
        job->inside++;
        lock.unlock();
        job->run();
        lock.lock();
        jobs_.remove(job);
        if (--job->inside == 0) job->left.notify_one();
    }
}

// Never destroyed: its threads may outlive main.
Processors &processors() {
    static Processors &p = *new Processors(config().processors - 1);
    return p;
}

} // namespace emulator
