// Files of a model folder as a converter or optimum-intel writes them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "model/graph_file.hpp"
#include "model/rotary.hpp"

namespace pagewheel {

/// What pagewheel takes from config.json and pagewheel.json; 0 or empty where they do not say.
struct ModelConfig {
    size_t max_position_embeddings = 0;
    /// Window of each layer, 0 for none; empty where the config does not say.
    std::vector<size_t> sliding_windows;
    /// Attention logits become soft_cap * tanh(logits / soft_cap); 0 for none.
    float attention_soft_cap = 0;
    size_t num_layers = 0;
    /// The folder holds a head of EAGLE-3, not a model. It reads what these layers of the model
    /// read; empty where the config does not say.
    bool is_eagle3 = false;
    std::vector<size_t> eagle3_layers;
    /// Read from pagewheel.json, or else derived from config.json.
    RotaryDescription rotary;
};

/// A model folder, or a decoder in memory, which has no other files.
class ModelFolder {
public:
    /// Opens whatever resolve_model() takes. Throws as it does.
    explicit ModelFolder(const std::filesystem::path& path, bool save_beside = false);
    explicit ModelFolder(GraphBuffers buffers);

    /// The head that a converter found beside the decoder: a decoder of its own, which guesses the
    /// token after the next one from what the model's last layer gives, its input hidden_states.
    /// Throws InvalidArgument where there is none.
    ModelFolder head() const;
    bool is_head() const { return m_is_head; }

    const std::filesystem::path& path() const { return m_path; }
    /// The decoder's file; for messages, where there is none.
    std::filesystem::path model_xml() const;
    std::shared_ptr<ov::Model> read_decoder(ov::Core& core) const;
    /// It may be missing; empty of a model in memory.
    std::filesystem::path generation_config_json() const;
    /// All unknown where the files are missing. Throws InvalidArgument, naming the file and
    /// the key, for numbers that no model has.
    ModelConfig read_config() const;

private:
    std::filesystem::path m_path;
    std::optional<GraphBuffers> m_buffers;
    bool m_is_head = false;
};

}  // namespace pagewheel
