#include "instruction.h"

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "checks.h"
#include "findings.h"

namespace emulator {

namespace {

typedef float Row __attribute__((vector_size(32))); // eight columns

float real(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

template <class T> T read(const Operands &operands, const Parameter &p) {
    T value;
    memcpy(&value, operands.at[p.operand], sizeof value);
    return value;
}

template <class T> void write(const Operands &operands, const Parameter &p, T value) {
    memcpy(operands.at[p.operand], &value, sizeof value);
}

// Bf16 and Tf32 are types of factors: how many values a register of 32 bits holds, and which.
struct Bf16 {
    enum { values = 2 };
    static float at(uint32_t bits, int i) { return real(i == 0 ? bits << 16 : bits & 0xffff0000u); }
};
struct Tf32 {
    enum { values = 1 };
    static float at(uint32_t bits, int) { return real(bits & ~0x1fffu); } // the lower bits are not used
};

// mma.m16n8k16 of bf16 and mma.m16n8k8 of tf32, sections "Matrix Fragments": with n values in a register, group = lane/4 and
// t = lane%4, register i of A holds row group + 8*(i%2), n columns from n*(t + 4*(i/2)) on; of B n rows from n*(t + 4*i)
// on of column group; element i of C and D row group + 8*(i/2), column 2t + i%2.
template <class T> void multiply(const Instruction &m, const Operands *const *lanes) {
    enum { n = T::values, inner = 8 * n };
    const auto &d = m.lists[0], &a = m.lists[1], &b = m.lists[2], &c = m.lists[3];
    float left[16][inner];
    union { float at[16][8]; Row row[16]; } right, sum;
    for (int lane = 0; lane < warpLanes; lane++) {
        const Operands &o = *lanes[lane];
        const int group = lane / 4, t = lane % 4;
        for (int i = 0; i < 4; i++) {
            for (int k = 0; k < n; k++) left[group + i % 2 * 8][n * (t + i / 2 * 4) + k] = T::at(read<uint32_t>(o, a[i]), k);
            sum.at[group + i / 2 * 8][t * 2 + i % 2] = read<float>(o, c[i]);
        }
        for (int i = 0; i < 2; i++)
            for (int k = 0; k < n; k++) right.at[n * (t + i * 4) + k][group] = T::at(read<uint32_t>(o, b[i]), k);
    }
    for (int row = 0; row < 16; row++)
        for (int k = 0; k < inner; k++) sum.row[row] += left[row][k] * right.row[k];
    for (int lane = 0; lane < warpLanes; lane++)
        for (int i = 0; i < 4; i++) write(*lanes[lane], d[i], sum.at[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2]);
}

// ldmatrix.m8n8.x4: lanes 8j to 8j+7 give the rows of matrix j, 16 bytes each. A lane gets of each matrix elements
// 2*(lane%4) and the next of row lane/4, or of the column of that number.
template <bool transposed> void loadMatrices(const Instruction &m, const Operands *const *lanes) {
    const char *rows[warpLanes];
    for (int lane = 0; lane < warpLanes; lane++)
        rows[lane] = Block::sharedAt(read<uint32_t>(*lanes[lane], m.lists[1][0]));
    for (int lane = 0; lane < warpLanes; lane++)
        for (int j = 0; j < 4; j++) {
            uint16_t pair[2];
            for (int k = 0; k < 2; k++) {
                const int row = transposed ? lane % 4 * 2 + k : lane / 4, column = transposed ? lane / 4 : lane % 4 * 2 + k;
                memcpy(&pair[k], rows[8 * j + row] + 2 * column, 2);
            }
            write(*lanes[lane], m.lists[0][j], pair[0] | static_cast<uint32_t>(pair[1]) << 16);
        }
}

template <class T> void runMultiply(const Instruction &m, Block &block, const Operands &operands, const char *file, int line) {
    if (const Operands *const *lanes = block.gather(operands, file, line)) multiply<T>(m, lanes);
}

// cvt.rna.tf32.f32: to the nearest number with 10 bits of fraction, of two the one further from zero; a NaN is the canonical one.
void runRound(const Instruction &m, Block &, const Operands &operands, const char *, int) {
    const uint32_t bits = read<uint32_t>(operands, m.lists[1][0]), down = bits & ~0x1fffu;
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    write(operands, m.lists[0][0], nan ? 0x7fffffffu : bits - down >= 0x1000u ? down + 0x2000u : down);
}

// cvt.rn.bf16x2.f32: two numbers to the nearest bfloat16, of two the even one; the first is the upper half. A NaN is the canonical one.
void runRoundPair(const Instruction &m, Block &, const Operands &operands, const char *, int) {
    uint32_t halves[2];
    for (int i = 0; i < 2; i++) {
        const uint32_t bits = read<uint32_t>(operands, m.lists[1 + i][0]);
        const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
        halves[i] = nan ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    }
    write(operands, m.lists[0][0], halves[0] << 16 | halves[1]);
}

// ex2.approx.ftz.f32: exact here; what is subnormal becomes zero, a NaN the canonical one.
void runPower(const Instruction &m, Block &, const Operands &operands, const char *, int) {
    const float power = std::exp2(read<float>(operands, m.lists[1][0]));
    if (std::isnan(power)) return write(operands, m.lists[0][0], uint32_t{0x7fffffff});
    write(operands, m.lists[0][0], std::fpclassify(power) == FP_SUBNORMAL ? 0.0f : power);
}

template <bool transposed>
void runLoad(const Instruction &m, Block &block, const Operands &operands, const char *file, int line) {
    block.touchShared(read<uint32_t>(operands, m.lists[1][0]), 16, false, m.opcode);
    if (const Operands *const *lanes = block.gather(operands, file, line)) loadMatrices<transposed>(m, lanes);
}

void runCopy(const Instruction &m, Block &block, const Operands &operands, const char *, int) {
    const Parameter &size = m.lists[3][0];
    const int64_t bytes = size.operand < 0 ? size.immediate : read<int32_t>(operands, size);
    block.copyAsync(read<uint32_t>(operands, m.lists[0][0]), read<uint64_t>(operands, m.lists[1][0]), bytes, m.opcode);
}

void runCommit(const Instruction &, Block &block, const Operands &, const char *, int) { block.commitCopies(); }

void runWait(const Instruction &m, Block &block, const Operands &operands, const char *, int) {
    const Parameter &count = m.lists[0][0];
    block.awaitCopies(count.operand < 0 ? count.immediate : read<int32_t>(operands, count));
}

void runProxyFence(const Instruction &, Block &block, const Operands &, const char *, int) { block.fenceProxy(); }

void runFence(const Instruction &, Block &block, const Operands &operands, const char *file, int line) {
    if (block.gather(operands, file, line)) block.fenceProducts();
}

void runCommitProducts(const Instruction &, Block &block, const Operands &operands, const char *file, int line) {
    if (block.gather(operands, file, line)) block.commitProducts();
}

void runWaitProducts(const Instruction &m, Block &block, const Operands &operands, const char *file, int line) {
    const Parameter &count = m.lists[0][0];
    if (block.gather(operands, file, line)) block.awaitProducts(count.operand < 0 ? count.immediate : read<int32_t>(operands, count));
}

// wgmma.mma_async, whose lists are the sums, A and B, whether there are sums already, signs, and whether A and B lie across.
void runProduct(const Instruction &m, Block &block, const Operands &operands, const char *file, int line) {
    const Operands *const *lanes = block.gather(operands, file, line);
    if (!lanes) return;
    const Parameter &left = m.lists[1][0], &right = m.lists[2][0];
    Product product{read<uint64_t>(operands, left), read<uint64_t>(operands, right), m.lists[6][0].immediate == 1, m.lists[7][0].immediate == 1,
                    static_cast<int>(2 * m.lists[0].size()), {}};
    for (int lane = 0; lane < warpLanes; lane++) {
        const Operands &o = *lanes[lane];
        if (read<uint64_t>(o, left) != product.left || read<uint64_t>(o, right) != product.right)
            block.fail(CUDA_ERROR_LAUNCH_FAILED, Finding::instruction, m.opcode + " has other descriptors in another lane");
        for (const Parameter &sum : m.lists[0]) product.sums.push_back(static_cast<float *>(o.at[sum.operand]));
    }
    block.beginProduct(product, m.opcode);
}

// Kinds of parameters: d, a float that is written, and may be read; a, one that is read and written; f, one that is read; w, 32 bits that
// are written; r, 32 bits that are read; q, 64 bits that are read; s, an address of shared memory; g, one of global memory; n, a number; b,
// 0 or 1 in the text; digits, that number. a*32 is 32 times a.
struct Model {
    const char *opcode;
    const char *lists; // "dddd rrrr"
    void (*execute)(const Instruction &, Block &, const Operands &, const char *, int);
};

constexpr Model models[] = {
    {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "dddd rrrr rr ffff", runMultiply<Bf16>},
    {"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "dddd rrrr rr ffff", runMultiply<Tf32>},
    {"cvt.rna.tf32.f32", "w f", runRound},
    {"cvt.rn.bf16x2.f32", "w f f", runRoundPair},
    {"ex2.approx.ftz.f32", "d f", runPower},
    {"ldmatrix.sync.aligned.m8n8.x4.shared.b16", "wwww s", runLoad<false>},
    {"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", "wwww s", runLoad<true>},
    {"cp.async.cg.shared.global", "s g 16 n", runCopy},
    {"cp.async.commit_group", "", runCommit},
    {"cp.async.wait_group", "n", runWait},
    {"fence.proxy.async.shared::cta", "", runProxyFence},
    {"wgmma.fence.sync.aligned", "", runFence},
    {"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16", "a*32 q q 1 1 1 b b", runProduct},
    {"wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16", "a*64 q q 1 1 1 b b", runProduct},
    {"wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16", "a*128 q q 1 1 1 b b", runProduct},
    {"wgmma.commit_group.sync.aligned", "", runCommitProducts},
    {"wgmma.wait_group.sync.aligned", "n", runWaitProducts},
};

// Text is what is left to parse.
struct Text {
    const char *at;

    bool take(char c) {
        while (isspace(static_cast<unsigned char>(*at))) at++;
        return *at == c && at++;
    }
    bool number(int64_t *value) {
        char *end;
        *value = strtoll(at, &end, 10);
        const bool any = end != at;
        at = end;
        return any;
    }
    bool parameter(Parameter *p) {
        p->memory = take('[');
        int64_t value = 0;
        const bool operand = take('%');
        if (!number(&value) || (p->memory && !take(']'))) return false;
        if (operand)
            p->operand = static_cast<int>(value);
        else
            p->immediate = value;
        return true;
    }
    bool list(std::vector<Parameter> *list) {
        const bool braces = take('{');
        do {
            list->emplace_back();
            if (!parameter(&list->back())) return false;
        } while (braces && take(','));
        return !braces || take('}');
    }
};

// Reports whether a list of a model is a number that the text must have.
bool isNumber(const std::string &kinds) { return isdigit(static_cast<unsigned char>(kinds[0])); }

bool fits(const std::string &kinds, const std::vector<Parameter> &list) {
    if (isNumber(kinds)) return list.size() == 1 && list[0] == Parameter{-1, std::stoi(kinds), false};
    if (kinds.size() != list.size()) return false;
    for (size_t i = 0; i < kinds.size(); i++) {
        const bool memory = kinds[i] == 's' || kinds[i] == 'g';
        const bool bit = kinds[i] == 'b', immediate = list[i].operand < 0;
        if (list[i].memory != memory || (immediate && kinds[i] != 'n' && !bit)) return false;
        if (bit && !(immediate && (list[i].immediate == 0 || list[i].immediate == 1))) return false;
    }
    return true;
}

// Compares the constraint of an operand with what the instruction does with it.
bool allows(const std::string &constraint, char kind, const Parameter &p) {
    if (p.operand < 0) return true;
    const bool written = constraint[0] == '=' || constraint[0] == '+', read = constraint[0] != '=';
    const char type = constraint.back();
    switch (kind) {
    case 'd': return written && type == 'f';
    case 'a': return written && read && type == 'f';
    case 'f': return read && type == 'f';
    case 'w': return written && type == 'r';
    case 'g':
    case 'q': return read && type == 'l';
    case 'n': return read && (type == 'r' || type == 'n');
    }
    return read && type == 'r';
}

std::vector<std::string> words(const std::string &text) {
    std::vector<std::string> all;
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find(' ', at), text.size());
        std::string word = text.substr(at, end - at);
        if (word.size() > 2 && word[1] == '*') word = std::string(std::stoi(word.substr(2)), word[0]);
        all.push_back(word);
        at = end + 1;
    }
    return all;
}

const Model *modelOf(const std::string &opcode) {
    for (const Model &m : models)
        if (opcode == m.opcode) return &m;
    return nullptr;
}

// Says what is wrong with the operands of an instruction; empty when nothing is.
std::string misfit(const Instruction &m, const Operands &operands) {
    const std::vector<std::string> kinds = words(modelOf(m.opcode)->lists);
    for (size_t i = 0; i < m.lists.size(); i++)
        for (size_t j = 0; j < m.lists[i].size(); j++) {
            const Parameter &p = m.lists[i][j];
            if (p.operand >= operands.count) return "%" + std::to_string(p.operand) + " is no operand";
            if (!isNumber(kinds[i]) && !allows(p.operand < 0 ? "n" : operands.constraints[p.operand], kinds[i][j], p))
                return "%" + std::to_string(p.operand) + " is \"" + operands.constraints[p.operand] + "\"";
        }
    return "";
}

} // namespace

Instruction::Instruction(const std::string &text) {
    Text rest{text.c_str()};
    while (*rest.at && !isspace(static_cast<unsigned char>(*rest.at)) && *rest.at != ';') opcode += *rest.at++;
    const Model *model = modelOf(opcode);
    bool good = model != nullptr;
    if (good && !rest.take(';')) {
        do {
            lists.emplace_back();
            good = rest.list(&lists.back());
        } while (good && rest.take(','));
        good = good && rest.take(';');
    }
    const std::vector<std::string> kinds = words(good ? model->lists : "");
    good = good && kinds.size() == lists.size();
    for (size_t i = 0; good && i < kinds.size(); i++) good = fits(kinds[i], lists[i]);
    if (good)
        execute = model->execute;
    else
        error = "\"" + text + "\" is no instruction that is emulated";
}

} // namespace emulator

using emulator::Block;
namespace Finding = emulator::Finding;
using emulator::Instruction;

PlimsollInstruction::PlimsollInstruction(const char *text) : parsed(new Instruction(text)) {}

void PlimsollInstruction::run(std::initializer_list<PlimsollOperand> outputs, std::initializer_list<PlimsollOperand> inputs,
                              const char *file, int line) const {
    const Instruction &m = *static_cast<const Instruction *>(parsed);
    Block &block = *Block::running();
    emulator::Operands operands;
    for (const auto *list : {&outputs, &inputs})
        for (const PlimsollOperand &o : *list) {
            if (operands.count == emulator::Operands::most) abort();
            operands.constraints[operands.count] = o.constraint;
            operands.at[operands.count++] = o.at;
        }
    if (!m.error.empty()) block.fail(CUDA_ERROR_INVALID_PTX, Finding::instruction, m.error);
    if (!m.fitting) { // all threads come with the same
        const std::string wrong = emulator::misfit(m, operands);
        if (!wrong.empty()) block.fail(CUDA_ERROR_INVALID_PTX, Finding::instruction, m.opcode + ": " + wrong);
        m.fitting = true;
    }
    m.execute(m, block, operands, file, line);
}
