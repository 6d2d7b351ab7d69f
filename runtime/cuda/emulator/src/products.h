// Products: asynchronous products of four warps (wgmma), by a model of what the PTX ISA says of them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace emulator {

// Factor is a matrix in shared memory as a descriptor has it. Lines of 128 bytes lie eight in an atom, with the swizzle of 128 bytes; other
// descriptors are not emulated. A line has inner indices of a row of A, or of a column of B. A factor that lies across has lines of 64 rows
// or columns of one inner index.
struct Factor {
    Factor(uint64_t descriptor, bool across);

    // Calls f(line, vector, address) for the pieces of 16 bytes of so many rows or columns, until f returns a text.
    template <class F> std::string each(int first, int count, F f) const;

    std::string error; // what is wrong with the descriptor

private:
    enum { inner = 16, line = 128, atom = 8 * line, values = 8, most = line / 2 };
    uint32_t at(int number, int vector) const;

    bool across_;
    uint32_t begin_, leading_, stride_; // the address, bytes from 64 rows or columns to the next, bytes from atom to atom
};

template <class F> std::string Factor::each(int first, int count, F f) const {
    const int lines = across_ ? 0 : first, vectors = across_ ? first / values : 0;
    for (int n = lines; n < lines + (across_ ? +inner : count); n++)
        for (int v = vectors; v < vectors + (across_ ? count : +inner) / values; v++)
            if (const std::string wrong = f(n - lines, v - vectors, at(n, v)); !wrong.empty()) return wrong;
    return "";
}

// Product is sums += left * right of a warp: 16 rows of the 64, all columns.
struct Product {
    uint64_t left, right; // descriptors
    bool leftAcross, rightAcross;
    int columns;
    std::vector<float *> sums; // registers, by lane

    bool operator==(const Product &other) const {
        return left == other.left && right == other.right && leftAcross == other.leftAcross && rightAcross == other.rightAcross &&
               columns == other.columns;
    }
    // Says what is wrong with the descriptors.
    std::string error() const { return Factor(left, leftAcross).error + Factor(right, rightAcross).error; }
    // Calls f for each vector's address that a warp reads, until f returns a text.
    template <class F> std::string eachVector(int warp, F f) const;
};

template <class F> std::string Product::eachVector(int warp, F f) const {
    const auto address = [&](int, int, uint32_t at) { return f(at); };
    const std::string wrong = Factor(left, leftAcross).each(warp % 4 * 16, 16, address);
    return wrong.empty() ? Factor(right, rightAcross).each(0, columns, address) : wrong;
}

// Products computes the products of a block's warps. A product is computed when its warp waits for it, as late as a GPU may. Vectors are the
// pieces of 16 bytes of dynamic shared memory. Functions return a text about a fault, or an empty one.
//
// 1. A vector that a product reads was written before by threads that have executed fence.proxy.async behind the write.
// 2. No vector is written while a product under way reads it.
// 3. The warps of a warpgroup begin the same products in the same order, the first one behind a wgmma.fence.
class Products {
public:
    void reset(int warps, size_t dynamic);

    void noteWrite(size_t vector, int thread) { written_[vector] = {thread, proxyFences_[thread]}; }
    void fenceProxy(int thread) { proxyFences_[thread]++; }
    bool isRead(size_t vector) const { return readers_[vector] > 0; }

    void fence(int warp) { warps_[warp].fenced = true; }
    std::string begin(int warp, const Product &product);
    void commit(int warp) { warps_[warp].groups.push_back(warps_[warp].underWay.size()); }
    // Computes the products of all groups but the latest so many. shared is the memory of address 0.
    std::string await(int warp, size_t left, const char *shared);

private:
    struct Write {
        int thread = -1;
        uint32_t proxyFences = 0; // of the thread, when it wrote
    };
    struct Warp {
        bool fenced = false;
        size_t begun = 0;
        std::vector<Product> underWay;
        std::vector<size_t> groups; // where each ends
    };

    std::string unseen(uint32_t address) const;
    std::string agree(int warp, const Product &product);

    std::vector<Write> written_;
    std::vector<uint16_t> readers_; // products under way that read a vector
    std::vector<uint32_t> proxyFences_; // of the threads
    std::vector<Warp> warps_;
    std::vector<std::vector<Product>> begun_; // by warpgroup, of the warp that is ahead, without sums
};

} // namespace emulator
