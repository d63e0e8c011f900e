// From whatever names a model to an OpenVINO model folder.
#pragma once

#include <filesystem>

namespace pagewheel {

/// A folder that has `file` is returned as it is. A .gguf file, or a Hugging Face folder
/// (config.json and safetensors), is converted by the command, once, into the cache that Python
/// uses. `save_beside` copies what a file became into the file's folder, but leaves what is there.
///
/// Throws ModelNotFound for a path that does not exist, InvalidArgument for what cannot be
/// converted, with the command's own words, Error where there is no command.
std::filesystem::path resolve_model(const std::filesystem::path& path, const char* file,
                                    bool save_beside = false);

}  // namespace pagewheel
