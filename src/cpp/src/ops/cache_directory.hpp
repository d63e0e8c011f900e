// Caches that a region finds by their addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "openvino/runtime/tensor.hpp"

namespace pagewheel {

/// A cache that was an input of the model: blocks in memory of the caller's.
struct CacheInput {
    std::string name;
    ov::element::Type type;
    ov::Shape block_shape;  ///< without the first dimension, the number of blocks
};

constexpr size_t cache_entry_bytes = 16;

/// One input in place of many: u8 [caches, 16], of each cache its address and its number of blocks
/// in 8 bytes each. The caches must outlive every inference.
///
/// Each input of a node of ours costs the plugin some 5 microseconds per inference, and a model has
/// two caches per layer.
ov::Tensor make_cache_directory(const std::vector<ov::Tensor>& caches);

/// The tensors that a directory names. They are made once for as long as it stays the same.
class CacheDirectory {
public:
    /// Throws InvalidArgument if the directory is not of so many caches, or names none where
    /// one should be.
    const std::vector<ov::Tensor>& read(const std::vector<CacheInput>& caches,
                                        const ov::Tensor& directory);

private:
    std::vector<uint8_t> m_bytes;  // that m_tensors were made of
    std::vector<ov::Tensor> m_tensors;
};

}  // namespace pagewheel
