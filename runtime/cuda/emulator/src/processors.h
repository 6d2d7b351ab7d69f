// Processors: the threads of the host that run blocks beside the threads of the streams.
#pragma once
#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>

namespace emulator {

// Processors is a pool. A job is a function that several threads run at the same time; it shares out its own work.
class Processors {
public:
    explicit Processors(int threads);
    // Runs the job here and on every thread that is free, and returns when all of them have returned from it.
    void runOnAll(const std::function<void()> &job);

private:
    struct Job {
        explicit Job(const std::function<void()> &job) : run(job) {}
        const std::function<void()> &run;
        int inside = 0;    // threads that are in it
        std::condition_variable left;
    };

    void serve();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::list<Job *> jobs_; // that threads may enter
};

Processors &processors();

} // namespace emulator
