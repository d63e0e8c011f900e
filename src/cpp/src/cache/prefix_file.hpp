// A prefix tree with its blocks in a file.
#pragma once

#include <filesystem>
#include <string>

#include "cache/block_memory.hpp"
#include "cache/block_store.hpp"
#include "pagewheel/prefix_selection.hpp"

namespace pagewheel {

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
