// A prefix tree with its blocks in a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>

#include "cache/block_pool.hpp"
#include "cache/block_store.hpp"
#include "pagewheel/prefix_selection.hpp"

namespace pagewheel {

/// A 64-bit sum of bytes in the order they come, at several GB/s. Against accidents, not attackers;
/// how the bytes are cut into pieces matters.
class Checksum {
public:
    void add(const void* data, size_t count) {
        const auto* bytes = static_cast<const char*>(data);
        for (; count >= 8; count -= 8, bytes += 8) {
            uint64_t word;
            std::memcpy(&word, bytes, 8);
            mix(word);
        }
        uint64_t rest = count;
        if (count > 0) std::memcpy(&rest, bytes, count);
        mix(rest);
        mix(count);
    }
    uint64_t value() const { return m_value; }

private:
    void mix(uint64_t word) {
        m_value = (m_value ^ word) * 0x9E3779B97F4A7C15u;
        m_value ^= m_value >> 29;
    }

    uint64_t m_value = 0;
};

/// Writes the selected prefixes, over `path` only when the file is complete. `description` says
/// what model and cache format they belong to. Throws Error if the file cannot be written.
void save_prefixes(const std::filesystem::path& path, const std::string& description,
                   const PrefixTree& tree, const BlockMemory& cache,
                   const PrefixSelection& selection);

/// Adds the file's prefixes to the tree while there are free blocks; the number of tokens that were
/// added. Throws Error if the file cannot be read or is damaged, which leaves what
/// came before the damage, and InvalidArgument if it belongs to another model or format.
size_t load_prefixes(const std::filesystem::path& path, const std::string& description,
                     BlockStore& store, BlockMemory& cache);

}  // namespace pagewheel
