// Asynchronous products of a group of four warps: inline PTX of sm_90a, with the layouts of the PTX ISA (section on asynchronous
// warpgroup level matrix instructions).
#ifndef PLIMSOLL_WGMMA_CUH
#define PLIMSOLL_WGMMA_CUH

#include "plimsoll.cuh"

// Slabs lie in shared memory with the swizzle of 128 bytes: eight lines of LINE bytes are an atom of ATOM bytes, aligned to as many. Vector v
// of 16 bytes of line l is at v ^ l % 8 of the line. A line has inner indices of a row of A, or of a column of B. If a slab lies across, a
// line has 64 rows or columns of one inner index, and the lines of the next 64 follow behind all lines of these.
enum { LINE = 128, ATOM = 8 * LINE };

// swizzled_memory returns the first atom in memory.
INLINE char *swizzled_memory(char *memory) {
	unsigned at = (unsigned)__cvta_generic_to_shared(memory);
	return memory + (ATOM - at % ATOM) % ATOM;
}

// slab_at describes a slab for wgmma, in units of 16 bytes. Bits 0 to 13 have its address. Bits 16 to 29 have the bytes from 64 rows or
// columns to the next, of slabs that lie across. Bits 32 to 45 have the bytes from atom to atom. Bit 62 is the swizzle.
INLINE u64 slab_at(const char *memory, int apart) {
	unsigned at = (unsigned)__cvta_generic_to_shared(memory);
	return (u64)(at >> 4) | (u64)(apart >> 4) << 16 | (u64)(ATOM >> 4) << 32 | 1ull << 62;
}

// further moves a described slab by so many bytes.
INLINE u64 further(u64 slab, int bytes) { return slab + (u64)(bytes >> 4); }

// show_copies makes what the thread has copied to shared memory visible to wgmma.
INLINE void show_copies() { INSTRUCTION("fence.proxy.async.shared::cta;", (), (), "memory"); }

// begin_products lets the products behind it use registers that were written before, end_products makes a group of them, and wait_products
// waits until at most N groups are under way.
INLINE void begin_products() { INSTRUCTION("wgmma.fence.sync.aligned;", (), (), "memory"); }
INLINE void end_products() { INSTRUCTION("wgmma.commit_group.sync.aligned;", (), (), "memory"); }
template <int N> INLINE void wait_products() {
	constexpr int n = N;
	INSTRUCTION("wgmma.wait_group.sync.aligned %0;", (), (OPERAND("n", n)), "memory");
}

#define TEN(t) "%" t "0,%" t "1,%" t "2,%" t "3,%" t "4,%" t "5,%" t "6,%" t "7,%" t "8,%" t "9,"
#define TEXT32 TEN("") TEN("1") TEN("2") "%30,%31"
#define TEXT64 TEN("") TEN("1") TEN("2") TEN("3") TEN("4") TEN("5") "%60,%61,%62,%63"
#define TEXT128 TEN("") TEN("1") TEN("2") TEN("3") TEN("4") TEN("5") TEN("6") TEN("7") TEN("8") TEN("9") TEN("10") TEN("11") \
	"%120,%121,%122,%123,%124,%125,%126,%127"
#define SUMS4(c) OPERAND("+f", (c)[0]), OPERAND("+f", (c)[1]), OPERAND("+f", (c)[2]), OPERAND("+f", (c)[3])
#define SUMS32(c, j) \
	SUMS4(c[j]), SUMS4(c[j + 1]), SUMS4(c[j + 2]), SUMS4(c[j + 3]), SUMS4(c[j + 4]), SUMS4(c[j + 5]), SUMS4(c[j + 6]), SUMS4(c[j + 7])
#define SUMS64(c, j) SUMS32(c, j), SUMS32(c, j + 8)
#define PRODUCT(n, text, left, right, across) \
	"wgmma.mma_async.sync.aligned.m64n" n "k16.f32.bf16.bf16 {" text "}, " left ", " right ", 1, 1, 1, " across ", " across ";"
#define SLABS (OPERAND("l", left), OPERAND("l", right))
#define MULTIPLY(n, text, first, second, sums) \
	do { \
		if constexpr (ACROSS) INSTRUCTION(PRODUCT(n, text, first, second, "1"), sums, SLABS, "memory"); \
		else INSTRUCTION(PRODUCT(n, text, first, second, "0"), sums, SLABS, "memory"); \
	} while (0)

// multiply_add begins sums += left*right, 64 x 16 and 16 x 8*columns. A warp has 16 of the 64 rows, as fragments side by side.
template <bool ACROSS> INLINE void multiply_add(float (&c)[8][4], u64 left, u64 right) {
	MULTIPLY("64", TEXT32, "%32", "%33", (SUMS32(c, 0)));
}
template <bool ACROSS> INLINE void multiply_add(float (&c)[16][4], u64 left, u64 right) {
	MULTIPLY("128", TEXT64, "%64", "%65", (SUMS64(c, 0)));
}
template <bool ACROSS> INLINE void multiply_add(float (&c)[32][4], u64 left, u64 right) {
	MULTIPLY("256", TEXT128, "%128", "%129", (SUMS64(c, 0), SUMS64(c, 16)));
}

// settle keeps the compiler from reading sums before the wait that is in front of it.
template <int N> INLINE void settle(float (&c)[N][4]) {
#ifndef PLIMSOLL_EMULATED
#pragma unroll
	for (int j = 0; j < N; j++)
#pragma unroll
		for (int i = 0; i < 4; i++) asm volatile("" : "+f"(c[j][i])::"memory");
#endif
}

#endif
