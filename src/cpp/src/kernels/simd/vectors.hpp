// Kernels that are written once for every instruction set with vectors.
//
// They are templates over a class V that names the vectors of one and their operations: Avx2
// (isa/avx2/vectors.hpp), Avx512 (isa/avx512/vectors.hpp). F is a vector of floats, I one of 32-bit
// words, Mask one bit a lane.
//
// V stands in an anonymous namespace. What is made of a template with it is then the object file's
// own. The linker must never choose a copy of a function that one file was compiled with more
// instructions for than another: the processor may lack them. A test looks at the object files
// (tests/cpp/no_weak_symbols.cmake).
#pragma once

#include <cstddef>
#include <utility>

namespace pagewheel::kernels {

/// Calls body(std::integral_constant<size_t, i>()) for i in [0, N). Accumulators are indexed with
/// it because GCC 12 leaves an array in memory that a loop indexes, unrolled or not.
template <class Body, size_t... I>
[[gnu::always_inline]] inline void unroll_indices(std::index_sequence<I...>, const Body& body) {
    (body(std::integral_constant<size_t, I>()), ...);
}
template <size_t N, class Body>
[[gnu::always_inline]] inline void unrolled(const Body& body) {
    unroll_indices(std::make_index_sequence<N>(), body);
}

#define PAGEWHEEL_INLINE __attribute__((always_inline))

/// Calls body(r, n), integral constants, for r in [0, R) and n in [0, N).
template <size_t R, size_t N, class Body>
[[gnu::always_inline]] inline void unrolled_grid(const Body& body) {
    unrolled<R>([&](auto r) PAGEWHEEL_INLINE {
        unrolled<N>([&](auto n) PAGEWHEEL_INLINE { body(r, n); });
    });
}

/// Add(sums[r][n], right(n), left(r)) for all of them: a step of a product of matrices, in which
/// each right() is loaded once for all rows.
template <auto Add, size_t R, size_t N, class Sum, class Left, class Right>
[[gnu::always_inline]] inline void add_outer_product(Sum (&sums)[R][N], const Left& left,
                                                     const Right& right) {
    decltype(right(std::integral_constant<size_t, 0>())) operands[N];
    unrolled<N>([&](auto n) PAGEWHEEL_INLINE { operands[n] = right(n); });
    unrolled<R>([&](auto r) PAGEWHEEL_INLINE {
        const auto x = left(r);
        unrolled<N>([&](auto n) PAGEWHEEL_INLINE { Add(sums[r][n], operands[n], x); });
    });
}

/// Calls body(std::integral_constant<size_t, n>(), i) for vectors [begin, end): `Most` at a time,
/// then each.
template <size_t Most, class Body>
[[gnu::always_inline]] inline void for_vector_groups(size_t begin, size_t end, const Body& body) {
    for (; begin + Most <= end; begin += Most) body(std::integral_constant<size_t, Most>(), begin);
    for (; begin < end; ++begin) body(std::integral_constant<size_t, 1>(), begin);
}

namespace simd {

/// All lanes, where a mask may stand for some.
struct AllLanes {};

/// Calls body(i, lanes) for the vectors that cover [0, n): with AllLanes, the last with a mask if
/// it is not whole.
template <class V, class Body>
[[gnu::always_inline]] inline void for_vectors(size_t n, const Body& body) {
    size_t i = 0;
    for (; i + V::lanes <= n; i += V::lanes) body(i, AllLanes());
    if (i < n) body(i, V::mask(n - i));
}

/// Calls body(std::integral_constant<size_t, R>(), row) for groups of R of `rows` rows, as many as
/// V has registers for.
template <class V, class Body>
[[gnu::always_inline]] inline void for_rows(size_t rows, const Body& body) {
    constexpr size_t most = V::rows_at_once;
    size_t row = 0;
    for (; row + most <= rows; row += most) body(std::integral_constant<size_t, most>(), row);
    const auto rest = [&](auto R) PAGEWHEEL_INLINE {
        if constexpr (R < most) body(R, row);
    };
    static_assert(most <= 6);
    switch (rows - row) {  // a jump: decode comes here for every block of a head
        case 1:
            return rest(std::integral_constant<size_t, 1>());
        case 2:
            return rest(std::integral_constant<size_t, 2>());
        case 3:
            return rest(std::integral_constant<size_t, 3>());
        case 4:
            return rest(std::integral_constant<size_t, 4>());
        case 5:
            return rest(std::integral_constant<size_t, 5>());
    }
}

}  // namespace simd
}  // namespace pagewheel::kernels
