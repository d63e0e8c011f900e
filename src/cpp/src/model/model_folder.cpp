#include "model/model_folder.hpp"

#include <cmath>

#include "check.hpp"
#include "model/json_file.hpp"

namespace pagewheel {
namespace fs = std::filesystem;

namespace {

size_t size_or_zero(const nlohmann::json& json, const char* key) {
    const auto value = json.find(key);
    return value != json.end() && value->is_number_unsigned() ? value->get<size_t>() : 0;
}

float positive_or_zero(const nlohmann::json& json, const char* key) {
    const auto value = json.find(key);
    const float number = value != json.end() && value->is_number() ? value->get<float>() : 0;
    return number > 0 && std::isfinite(number) ? number : 0;
}

std::vector<size_t> read_sliding_windows(const nlohmann::json& json) {
    const size_t layers = size_or_zero(json, "num_hidden_layers");
    const bool in_use = json.value("use_sliding_window", true);
    std::vector<size_t> windows(layers, in_use ? size_or_zero(json, "sliding_window") : 0);
    const auto types = json.find("layer_types");
    if (types != json.end() && types->is_array() && types->size() == layers)
        for (size_t i = 0; i < layers; ++i)
            if ((*types)[i] == "full_attention") windows[i] = 0;
    return windows;
}

}  // namespace

ModelFolder::ModelFolder(const fs::path& path) : m_path(path) {
    check_argument(fs::exists(path), "model folder ", path, " does not exist");
    check_argument(
        fs::is_directory(path), path,
        " is a file; a folder with openvino_model.xml is needed (`pagewheel convert` makes "
        "one from a .gguf file)");
    check_argument(fs::exists(model_xml()), path, " holds no openvino_model.xml");
}

ModelConfig ModelFolder::read_config() const {
    ModelConfig config;
    if (const fs::path file = m_path / "config.json"; fs::exists(file)) {
        const nlohmann::json json = read_json_object(file);
        config.max_position_embeddings = size_or_zero(json, "max_position_embeddings");
        config.sliding_windows = read_sliding_windows(json);
        config.attention_soft_cap = positive_or_zero(json, "attn_logit_softcapping");
        config.rotary = derive_rotary(json);
    }
    if (const fs::path file = m_path / "pagewheel.json"; fs::exists(file)) {
        const nlohmann::json own = read_json_object(file);
        const size_t context = size_or_zero(own, "context_length");
        if (context > 0) config.max_position_embeddings = context;
        config.sliding_windows = own.value("sliding_windows", config.sliding_windows);
        if (own.contains("attention_soft_cap"))
            config.attention_soft_cap = positive_or_zero(own, "attention_soft_cap");
        RotaryDescription rotary = read_rotary(own.value("rotary", nlohmann::json::object()));
        if (!rotary.kinds.empty()) config.rotary = std::move(rotary);
    }
    return config;
}

GenerationConfig ModelFolder::read_generation_config() const {
    const fs::path file = m_path / "generation_config.json";
    return fs::exists(file) ? GenerationConfig(file) : GenerationConfig();
}

}  // namespace pagewheel
