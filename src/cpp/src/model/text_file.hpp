// Reading a model folder's file of text as a whole.
#pragma once

#include <filesystem>
#include <string>

namespace pagewheel {

/// Throws InvalidArgument where `path` is no regular file: a pipe would never end.
void check_is_file(const std::filesystem::path& path);

/// All bytes. Throws InvalidArgument where `path` is no regular file or cannot be read.
std::string read_text(const std::filesystem::path& path);

}  // namespace pagewheel
