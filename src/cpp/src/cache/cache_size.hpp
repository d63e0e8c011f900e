// How many blocks the cache has, and how much memory the system would give this process.
#pragma once

#include <cstddef>
#include <filesystem>

namespace pagewheel {

/// What the system could give to this process now without swapping, in bytes: no more than the
/// limits of its control groups leave. Files that the system caches count as free.
/// `root` is the folder that /proc and what is mounted are looked for in.
size_t available_memory(const std::filesystem::path& root = "/");

/// The number of blocks that hold so many tokens.
inline size_t blocks_for(size_t tokens, size_t block_size) {
    return (tokens + block_size - 1) / block_size;
}

/// How many blocks of `block_bytes` to reserve: `wanted_blocks` if not 0; else what fits
/// `wanted_bytes` if not 0; else as many as fit `fraction` of the free memory, and no more than
/// `useful_blocks`.
size_t choose_num_blocks(size_t block_bytes, size_t wanted_blocks, size_t wanted_bytes,
                         double fraction, size_t useful_blocks);

}  // namespace pagewheel
