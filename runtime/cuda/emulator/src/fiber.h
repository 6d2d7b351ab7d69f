// Fibers: stacks that take turns on one thread of the host.
#pragma once
#include <cstddef>
#include <vector>

#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace emulator {

// Fiber is a suspended point of execution: a stack and where it stopped. The thread that starts fibers has one too.
class Fiber {
public:
    // Makes the fiber start in body(argument) on the given stack when it is resumed the next time. Body never returns.
    void prepare(char *stack, size_t bytes, void (*body)(void *), void *argument);
    // Suspends the running fiber into `this` and continues `next`.
    void switchTo(Fiber &next);

private:
#ifdef __x86_64__
    void *top_ = nullptr; // the stack pointer, with the registers to restore above it
#else
    ucontext_t context_;
#endif
};

// Stacks is the memory of a number of fibers, allocated once; pages that no fiber touches cost nothing.
class Stacks {
public:
    explicit Stacks(int count);
    ~Stacks();
    Stacks(const Stacks &) = delete;
    char *at(int i) const { return base_ + static_cast<size_t>(i) * bytes; }
    // Reports whether the lowest words of stack i still hold what was written there.
    bool intact(int i) const;
    void guard(int i) const;

    static constexpr size_t bytes = 64 << 10;

private:
    char *base_;
    size_t total_;
};

} // namespace emulator
