// What the attention kernels of few and of many rows share: memory of a thread, and the cache
// format as a constant. Templates over the ISA even where nothing depends on it: the linker keeps
// one copy of an inline function, and it must not be one compiled for more than the processor has.
#pragma once

#include <type_traits>

#include "kernels/paged_attention_tile.hpp"

namespace pagewheel::kernels {

/// Hands out pieces of one thread's memory; with a null base it only counts.
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

/// Calls body(std::integral_constant<CacheFormat, format>()).
template <class V, class Body>
auto for_format(CacheFormat format, const Body& body) {
    switch (format) {
        case CacheFormat::f32:
            return body(std::integral_constant<CacheFormat, CacheFormat::f32>());
        case CacheFormat::bf16:
            return body(std::integral_constant<CacheFormat, CacheFormat::bf16>());
        case CacheFormat::f16:
            return body(std::integral_constant<CacheFormat, CacheFormat::f16>());
        case CacheFormat::u8:
            return body(std::integral_constant<CacheFormat, CacheFormat::u8>());
        default:
            return body(std::integral_constant<CacheFormat, CacheFormat::u4>());
    }
}

}  // namespace pagewheel::kernels
