// Loops that are unrolled with their index as a constant.
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

}  // namespace pagewheel::kernels
