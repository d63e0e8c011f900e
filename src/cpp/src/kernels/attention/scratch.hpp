// Memory of one thread.
#pragma once

#include <cstddef>

#include "kernels/attention/tile.hpp"

namespace pagewheel::kernels {

/// Hands out pieces of one thread's memory; with a null base it only counts. V says whose object
/// file its functions are in (simd/vectors.hpp).
template <class V>
class Scratch {
public:
    explicit Scratch(float* base) : base_(base) {}

    template <class E = float>
    E* take(size_t count) {
        E* p = base_ ? reinterpret_cast<E*>(base_ + used_) : nullptr;
        used_ += padded((count * sizeof(E) + 3) / 4);
        return p;
    }
    size_t used() const { return used_; }

private:
    float* base_;
    size_t used_ = 0;
};

}  // namespace pagewheel::kernels
