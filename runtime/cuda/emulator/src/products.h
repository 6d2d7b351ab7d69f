// Products: asynchronous products of four warps (wgmma), by a model of what the PTX ISA says of them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace emulator {

// Factor is a matrix in shared memory as a descriptor has it: rows of A or columns of B, each of 16 values of bf16 in a row of 128
// bytes, eight rows in an atom, with the swizzle of 128 bytes. Other descriptors are not emulated.
struct Factor {
    explicit Factor(uint64_t descriptor);

    // The address of eight values of a row, from value 8 * vector on.
    uint32_t at(int row, int vector) const;

    uint32_t begin, apart; // the address, and the bytes from atom to atom
    std::string error;     // what is wrong with the descriptor
};

// Product is sums += left * right of a warp: 16 rows of the 64, all columns.
struct Product {
    uint64_t left, right; // descriptors
    int columns;
    std::vector<float *> sums; // registers, by lane
};

// Products are those of a block's warps, and what they read. They are computed when a warp waits for them, which is as late as a GPU
// may. Vectors are the pieces of 16 bytes of dynamic shared memory. Functions return what is wrong, or an empty text.
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

    // Calls f for each vector's address that a warp's product reads, until f returns a text.
    template <class F> static std::string eachVector(int warp, const Product &product, F f);

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

template <class F> std::string Products::eachVector(int warp, const Product &product, F f) {
    const Factor left(product.left), right(product.right);
    for (int vector = 0; vector < 2; vector++) {
        for (int row = 0; row < 16; row++)
            if (const std::string wrong = f(left.at(warp % 4 * 16 + row, vector)); !wrong.empty()) return wrong;
        for (int column = 0; column < product.columns; column++)
            if (const std::string wrong = f(right.at(column, vector)); !wrong.empty()) return wrong;
    }
    return "";
}

} // namespace emulator
