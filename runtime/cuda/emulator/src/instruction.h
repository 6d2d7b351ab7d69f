// Instructions: inline PTX of kernels, executed by a model of what the PTX ISA says of each instruction.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "block.h"

namespace emulator {

// Parameter is an operand in the text of an instruction: "%2", "[%2]" or "16".
struct Parameter {
    int operand = -1; // of the asm statement; -1: an immediate
    int64_t immediate = 0;
    bool memory = false;

    bool operator==(const Parameter &other) const {
        return operand == other.operand && immediate == other.immediate && memory == other.memory;
    }
};

// Instruction is a parsed text. Its parameters are lists: "{%0,%1}" is one of two, "%2" one of one.
struct Instruction {
    explicit Instruction(const std::string &text);

    std::string opcode;
    std::vector<std::vector<Parameter>> lists;
    std::string error; // why the text is no instruction that there is a model of
    mutable std::atomic<bool> fitting{false}; // operands have been compared with the model
    void (*execute)(const Instruction &, Block &, const Operands &, const char *file, int line) = nullptr;
};

} // namespace emulator
