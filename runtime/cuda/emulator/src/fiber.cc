#include "fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

namespace emulator {

#ifdef __x86_64__

// Saves what the System V ABI says a call keeps, changes the stack and restores it from there. The control words of
// the floating-point units are the same in all fibers, so they stay.
extern "C" void plimsollSwitch(void **save, void *next);
extern "C" void plimsollEnter();
asm(R"(
.text
.type plimsollSwitch, @function
.globl plimsollSwitch
.hidden plimsollSwitch
plimsollSwitch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size plimsollSwitch, .-plimsollSwitch

.type plimsollEnter, @function
.globl plimsollEnter
.hidden plimsollEnter
plimsollEnter:
    movq %r12, %rdi
    callq *%rbx
    ud2
.size plimsollEnter, .-plimsollEnter
)");

void Fiber::prepare(char *stack, size_t bytes, void (*body)(void *), void *argument) {
    // plimsollEnter runs with the stack pointer at a multiple of 16, as in front of a call.
    void **top = reinterpret_cast<void **>(stack + bytes) - 2;
    *--top = reinterpret_cast<void *>(plimsollEnter);
    *--top = nullptr;                            // rbp
    *--top = reinterpret_cast<void *>(body);     // rbx
    *--top = argument;                           // r12
    for (int i = 0; i < 3; i++) *--top = nullptr; // r13, r14, r15
    top_ = top;
}

void Fiber::switchTo(Fiber &next) { plimsollSwitch(&top_, next.top_); }

#else

void Fiber::prepare(char *stack, size_t bytes, void (*body)(void *), void *argument) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack;
    context_.uc_stack.ss_size = bytes;
    context_.uc_link = nullptr;
    makecontext(&context_, reinterpret_cast<void (*)()>(body), 1, argument);
}

void Fiber::switchTo(Fiber &next) { swapcontext(&context_, &next.context_); }

#endif

static constexpr uint64_t canary = 0x706c696d736f6c6c;

Stacks::Stacks(int count) : total_(static_cast<size_t>(count) * bytes) {
    void *p = mmap(nullptr, total_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<char *>(p);
}

Stacks::~Stacks() { munmap(base_, total_); }

void Stacks::guard(int i) const {
    for (int word = 0; word < 4; word++) reinterpret_cast<uint64_t *>(at(i))[word] = canary;
}

bool Stacks::intact(int i) const {
    for (int word = 0; word < 4; word++)
        if (reinterpret_cast<const uint64_t *>(at(i))[word] != canary) return false;
    return true;
}

} // namespace emulator
