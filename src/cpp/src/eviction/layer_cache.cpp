#include "eviction/layer_cache.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.hpp"
#include "kernels/cache_formats.hpp"

namespace pagewheel {

bool RotationTable::grow(size_t largest) {
    if (largest < m_num_rows || m_kind.dims == 0) return false;
    const size_t half = m_kind.dims / 2, first = m_num_rows;
    const size_t rows = largest + largest / 4 + 64;  // seldom, and not much more than is used
    m_values.resize(rows * m_kind.dims);
    m_num_rows = rows;
    for (size_t row = first; row < rows; ++row)
        for (size_t i = 0; i < half; ++i) {
            const double angle = m_kind.angle(int64_t(row), i);
            m_values[row * m_kind.dims + i] = float(std::cos(angle));
            m_values[row * m_kind.dims + half + i] = float(std::sin(angle));
        }
    return true;
}

namespace {

using kernels::CacheFormat;

// ---- BlockLayout::rows: a head's tokens one after the other, `size` elements each.

/// Calls body(traits) of a format whose blocks may be rows.
template <class Body>
void for_number_format(CacheFormat format, const Body& body) {
    kernels::for_format<void>(format, [&](auto f) {
        using Traits = kernels::FormatTraits<f>;
        if constexpr (Traits::quantized)
            check_invariant(false, "rows of ", kernels::cache_format_name(f));
        else
            body(Traits());
    });
}

template <class Traits>
float element(const uint8_t* bytes) {
    typename Traits::Element bits;
    std::memcpy(&bits, bytes, sizeof bits);
    return Traits::decode(bits);
}

template <class Traits>
void set_element(float value, uint8_t* bytes) {
    const auto bits = static_cast<typename Traits::Element>(Traits::encode(value));
    std::memcpy(bytes, &bits, sizeof bits);
}

void copy_rows(size_t heads, size_t block_size, size_t row_bytes, const uint8_t* from_block,
               size_t from, uint8_t* to_block, size_t to, size_t count) {
    for (size_t head = 0; head < heads; ++head)
        std::memmove(to_block + (head * block_size + to) * row_bytes,
                     from_block + (head * block_size + from) * row_bytes, count * row_bytes);
}

/// Rotates one key.
template <class Traits>
void rotate_row(const LayerRotary& rotary, const float* cosines, uint8_t* row) {
    constexpr size_t bytes = Traits::bits / 8;
    const size_t half = rotary.dims / 2;
    const float* sines = cosines + half;
    for (size_t i = 0; i < half; ++i) {
        uint8_t* first = row + bytes * (rotary.interleaved ? 2 * i : i);
        uint8_t* second = row + bytes * (rotary.interleaved ? 2 * i + 1 : i + half);
        const float a = element<Traits>(first), b = element<Traits>(second);
        set_element<Traits>(a * cosines[i] + b * sines[i], first);
        set_element<Traits>(b * cosines[i] - a * sines[i], second);
    }
}

}  // namespace

void LayerCache::copy_block(BlockId from, BlockId to) const {
    std::memcpy(keys(to), keys(from), layout().key_block_bytes());
    std::memcpy(values(to), values(from), layout().value_block_bytes());
}

void LayerCache::move_tokens(const std::vector<BlockId>& table, size_t from, size_t to,
                             size_t count) const {
    const size_t size = layout().block_size;
    while (count > 0) {
        const size_t run = std::min({count, size - from % size, size - to % size});
        const BlockId source = table[from / size], target = table[to / size];
        if (m_blocks == BlockLayout::lanes) {
            kernels::copy_keys(layout(), keys(source), from % size, keys(target), to % size, run);
            kernels::copy_values(layout(), values(source), from % size, values(target), to % size,
                                 run);
        } else {
            const size_t bytes = layout().bits() / 8;
            copy_rows(layout().kv_heads, size, bytes * layout().key_size, keys(source), from % size,
                      keys(target), to % size, run);
            copy_rows(layout().kv_heads, size, bytes * layout().value_size, values(source),
                      from % size, values(target), to % size, run);
        }
        from += run;
        to += run;
        count -= run;
    }
}

void LayerCache::rotate_back(const std::vector<BlockId>& table, const std::vector<int32_t>& deltas,
                             const RotationTable& angles) const {
    check_invariant(m_blocks == BlockLayout::rows && angles.dims() == m_layer.rotary.dims,
                    "keys of layer ", m_layer.layer, " cannot be rotated in place");
    const size_t size = layout().block_size, row = layout().bits() / 8 * layout().key_size;
    for (size_t slot = 0; slot < deltas.size(); ++slot) {
        if (deltas[slot] == 0) continue;
        const float* cosines = angles.data() + size_t(deltas[slot]) * angles.dims();
        for (size_t head = 0; head < layout().kv_heads; ++head)
            for_number_format(layout().format, [&](auto traits) {
                rotate_row<decltype(traits)>(
                    m_layer.rotary, cosines,
                    keys(table[slot / size]) + (head * size + slot % size) * row);
            });
    }
}

void LayerCache::read_keys(const std::vector<BlockId>& table, size_t first, size_t last,
                           float* out) const {
    read(table, first, last, m_keys, layout().key_block_bytes(), layout().key_size,
         kernels::read_key, out);
}

void LayerCache::read_values(const std::vector<BlockId>& table, size_t first, size_t last,
                             float* out) const {
    read(table, first, last, m_values, layout().value_block_bytes(), layout().value_size,
         kernels::read_value, out);
}

void LayerCache::read(const std::vector<BlockId>& table, size_t first, size_t last,
                      const uint8_t* blocks, size_t block_bytes, size_t width,
                      decltype(&kernels::read_key) read_lanes, float* out) const {
    const size_t size = layout().block_size, bytes = layout().bits() / 8;
    for (size_t slot = first; slot < last; ++slot) {
        const uint8_t* block = blocks + size_t(table[slot / size]) * block_bytes;
        for (size_t head = 0; head < layout().kv_heads; ++head, out += width) {
            if (m_blocks == BlockLayout::lanes) {
                read_lanes(layout(), block, slot % size, head, out);
                continue;
            }
            const uint8_t* row = block + (head * size + slot % size) * bytes * width;
            for_number_format(layout().format, [&](auto traits) {
                for (size_t i = 0; i < width; ++i)
                    out[i] = element<decltype(traits)>(row + i * bytes);
            });
        }
    }
}

}  // namespace pagewheel
