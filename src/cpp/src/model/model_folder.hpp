// Files of a model folder as a converter or optimum-intel writes them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "pagewheel/generation_config.hpp"

namespace pagewheel {

/// What pagewheel takes from config.json; 0 or empty where the file does not say.
struct ModelConfig {
    std::string model_type;
    size_t max_position_embeddings = 0;
    size_t vocab_size = 0;
};

class ModelFolder {
public:
    /// Throws std::invalid_argument if `path` is no folder or holds no openvino_model.xml.
    explicit ModelFolder(const std::filesystem::path& path);

    std::filesystem::path model_xml() const { return m_path / "openvino_model.xml"; }
    /// config.json; all unknown if the file is missing.
    ModelConfig read_config() const;
    /// generation_config.json; defaults if it is missing.
    GenerationConfig read_generation_config() const;

private:
    std::filesystem::path m_path;
};

}  // namespace pagewheel
