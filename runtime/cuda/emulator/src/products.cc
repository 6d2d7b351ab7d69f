#include "products.h"

#include <cstring>

#include "../device.h"

namespace emulator {

namespace {

typedef float Row __attribute__((vector_size(32))); // eight columns

constexpr int lanes = 32, inner = 16, mostColumns = 256;

size_t vectorOf(uint32_t address) { return (address - PLIMSOLL_SHARED_BEGIN) / 16; }

float real(uint16_t half) {
    const uint32_t bits = static_cast<uint32_t>(half) << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// Reads eight values to places that are so far apart.
void readVector(const char *from, float *to, size_t apart) {
    uint16_t halves[8];
    memcpy(halves, from, sizeof halves);
    for (int i = 0; i < 8; i++) to[i * apart] = real(halves[i]);
}

// Section "Matrix Fragments for wgmma.mma_async": register i of a lane is row lane/4 + 8*(i/2%2) of the warp's 16, column 8*(i/4) +
// 2*(lane%4) + i%2.
int placeOf(int lane, int i, int columns) { return (lane / 4 + i / 2 % 2 * 8) * columns + i / 4 * 8 + lane % 4 * 2 + i % 2; }

// Computes a warp's rows of a product.
void compute(int warp, const Product &p, const char *shared) {
    static thread_local float left[16 * inner];
    alignas(32) static thread_local float right[inner * mostColumns], sums[16 * mostColumns];
    const size_t columns = p.columns;
    Factor(p.left, p.leftAcross).each(warp % 4 * 16, 16, [&](int line, int vector, uint32_t at) {
        if (p.leftAcross) readVector(shared + at, left + 8 * vector * inner + line, inner);
        else readVector(shared + at, left + line * inner + 8 * vector, 1);
        return "";
    });
    Factor(p.right, p.rightAcross).each(0, p.columns, [&](int line, int vector, uint32_t at) {
        if (p.rightAcross) readVector(shared + at, right + line * columns + 8 * vector, 1);
        else readVector(shared + at, right + 8 * vector * columns + line, columns);
        return "";
    });
    const int held = p.columns / 2; // registers of a lane
    for (int lane = 0; lane < lanes; lane++)
        for (int i = 0; i < held; i++) sums[placeOf(lane, i, p.columns)] = *p.sums[lane * held + i];
    for (int row = 0; row < 16; row++)
        for (int k = 0; k < inner; k++)
            for (size_t n = 0; n < columns; n += 8)
                *reinterpret_cast<Row *>(sums + row * columns + n) += left[row * inner + k] * *reinterpret_cast<const Row *>(right + k * columns + n);
    for (int lane = 0; lane < lanes; lane++)
        for (int i = 0; i < held; i++) *p.sums[lane * held + i] = sums[placeOf(lane, i, p.columns)];
}

} // namespace

// Section "Matrix Descriptor Format": bits 0 to 13 the address, 16 to 29 the leading and 32 to 45 the stride byte offset, all in units of
// 16 bytes; 49 to 51 the base offset, 62 and 63 the swizzle. Lines along the inner index have no leading byte offset.
Factor::Factor(uint64_t descriptor, bool across)
    : across_(across), begin_(static_cast<uint32_t>(descriptor & 0x3fff) << 4), leading_(static_cast<uint32_t>(descriptor >> 16 & 0x3fff) << 4),
      stride_(static_cast<uint32_t>(descriptor >> 32 & 0x3fff) << 4) {
    constexpr uint64_t fields = 0x3fffull | 0x3fffull << 16 | 0x3fffull << 32 | 7ull << 49 | 3ull << 62;
    if (descriptor & ~fields) error = "a descriptor has bits that mean nothing";
    else if (descriptor >> 62 != 1) error = "a descriptor has no swizzle of 128 bytes, which alone is emulated";
    else if (descriptor >> 49 & 7 || begin_ % atom >= (across ? 1 : line)) error = "a matrix does not begin at a multiple of 1024 bytes";
    else if (begin_ % line > line - 2 * inner) error = "a matrix has no 16 values in a line of 128 bytes";
}

uint32_t Factor::at(int number, int vector) const {
    const uint32_t plain = begin_ + vector / 8 * leading_ + vector % 8 * 16 + number / 8 * stride_ + number % 8 * line;
    return plain ^ (plain / line % 8 << 4);
}

void Products::reset(int warps, size_t dynamic) {
    written_.assign((dynamic + 15) / 16, Write());
    readers_.assign((dynamic + 15) / 16, 0);
    proxyFences_.assign(warps * lanes, 0);
    warps_.assign(warps, Warp());
    begun_.assign((warps + 3) / 4, {});
}

std::string Products::unseen(uint32_t address) const {
    const Write &w = written_[vectorOf(address)];
    if (w.thread < 0 || w.proxyFences < proxyFences_[w.thread]) return "";
    return "wgmma reads byte " + std::to_string(address - PLIMSOLL_SHARED_BEGIN) + " of shared memory, which thread " + std::to_string(w.thread) +
           " has written without a fence.proxy.async behind";
}

// Compares a warp's product with that of the warp that was first.
std::string Products::agree(int warp, const Product &product) {
    std::vector<Product> &all = begun_[warp / 4];
    const size_t number = warps_[warp].begun++;
    if (number == all.size()) {
        all.push_back(product);
        all.back().sums.clear();
    }
    return all[number] == product ? "" : "warps of a warpgroup begin different products";
}

std::string Products::begin(int warp, const Product &product) {
    if (!warps_[warp].fenced) return "no wgmma.fence is in front of the first product";
    if (const std::string wrong = agree(warp, product); !wrong.empty()) return wrong;
    warps_[warp].underWay.push_back(product);
    return product.eachVector(warp, [&](uint32_t address) {
        readers_[vectorOf(address)]++;
        return unseen(address);
    });
}

std::string Products::await(int warp, size_t left, const char *shared) {
    Warp &w = warps_[warp];
    if (w.groups.size() <= left) return "";
    const size_t done = w.groups.size() - left, end = w.groups[done - 1];
    for (size_t i = 0; i < end; i++) {
        const std::string wrong = w.underWay[i].eachVector(warp, [&](uint32_t address) {
            readers_[vectorOf(address)]--;
            return unseen(address);
        });
        if (!wrong.empty()) return wrong;
        compute(warp, w.underWay[i], shared);
    }
    w.underWay.erase(w.underWay.begin(), w.underWay.begin() + end);
    w.groups.erase(w.groups.begin(), w.groups.begin() + done);
    for (size_t &group : w.groups) group -= end;
    return "";
}

} // namespace emulator
