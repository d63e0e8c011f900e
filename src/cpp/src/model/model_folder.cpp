#include "model/model_folder.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "base/check.hpp"
#include "model/json_file.hpp"
#include "model/model_source.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel {
namespace fs = std::filesystem;

namespace {

// Far above any model's; what is made for each token or layer of more would not end, or overflow.
constexpr size_t max_context = std::numeric_limits<int32_t>::max();
constexpr size_t max_layers = 65'536;

constexpr const char* mtp_model = "openvino_mtp_model.xml";

/// 0 where there is no number. Throws InvalidArgument for one outside of [0, limit].
size_t checked_size(const nlohmann::json& value, const char* key, size_t limit) {
    if (!value.is_number()) return 0;
    const auto number = value.get<double>();
    check_file(number >= 0 && number <= double(limit) && number == std::floor(number), key, " is ",
               value, "; allowed: integers from 0 to ", limit);
    return size_t(number);
}

size_t optional_size(const nlohmann::json& json, const char* key, size_t limit) {
    const auto value = json.find(key);
    return value == json.end() ? 0 : checked_size(*value, key, limit);
}

float positive_or_zero(const nlohmann::json& json, const char* key) {
    const auto value = json.find(key);
    const float number = value != json.end() && value->is_number() ? value->get<float>() : 0;
    return number > 0 && std::isfinite(number) ? number : 0;
}

std::vector<size_t> read_sliding_windows(const nlohmann::json& json) {
    const size_t layers = optional_size(json, "num_hidden_layers", max_layers);
    const auto use = json.find("use_sliding_window");
    const bool in_use = use == json.end() || *use != false;
    std::vector<size_t> windows(layers,
                                in_use ? optional_size(json, "sliding_window", max_context) : 0);
    const auto types = json.find("layer_types");
    if (types != json.end() && types->is_array() && types->size() == layers)
        for (size_t i = 0; i < layers; ++i)
            if ((*types)[i] == "full_attention") windows[i] = 0;
    return windows;
}

bool is_eagle3(const nlohmann::json& json) {
    const auto names = json.find("architectures");
    return names != json.end() && names->is_array() &&
           std::any_of(names->begin(), names->end(), [](const nlohmann::json& name) {
               return name.is_string() &&
                      name.get<std::string>().find("Eagle3") != std::string::npos;
           });
}

std::vector<size_t> read_eagle3_layers(const nlohmann::json& json) {
    constexpr const char* key = "eagle_aux_hidden_state_layer_ids";
    // SGLang's eagle_config has the layers before those that vLLM's key has: whose output is read.
    const auto own = json.find("eagle_config");
    const bool is_output = own != json.end() && own->is_object() && own->contains(key);
    const nlohmann::json& object = is_output ? *own : json;
    const auto ids = object.find(key);
    std::vector<size_t> layers;
    if (ids == object.end() || ids->is_null()) return layers;
    check_file(ids->is_array() && ids->size() == 3, key, " must be an array of 3 numbers");
    for (const nlohmann::json& id : *ids)
        layers.push_back(checked_size(id, key, max_layers) + (is_output ? 1 : 0));
    return layers;
}

/// Reads config.json.
ModelConfig derive_config(const nlohmann::json& json) {
    ModelConfig config;
    config.max_position_embeddings = optional_size(json, "max_position_embeddings", max_context);
    config.sliding_windows = read_sliding_windows(json);
    config.attention_soft_cap = positive_or_zero(json, "attn_logit_softcapping");
    config.num_layers = optional_size(json, "num_hidden_layers", max_layers);
    config.is_eagle3 = is_eagle3(json);
    if (config.is_eagle3) config.eagle3_layers = read_eagle3_layers(json);
    config.rotary = derive_rotary(json);
    return config;
}

/// What pagewheel.json says goes before what is in `config`.
void update(ModelConfig& config, const nlohmann::json& own) {
    check_description_version(own);
    const size_t context = optional_size(own, "context_length", max_context);
    if (context > 0) config.max_position_embeddings = context;
    if (const auto windows = own.find("sliding_windows"); windows != own.end()) {
        check_file(windows->is_array() && windows->size() <= max_layers,
                   "sliding_windows must be an array of at most ", max_layers, " numbers");
        config.sliding_windows.clear();
        for (const nlohmann::json& window : *windows)
            config.sliding_windows.push_back(checked_size(window, "sliding_windows", max_context));
    }
    if (own.contains("attention_soft_cap"))
        config.attention_soft_cap = positive_or_zero(own, "attention_soft_cap");
    const auto found = own.find("rotary");
    if (found == own.end()) return;
    RotaryDescription rotary = read_rotary(*found);
    if (!rotary.kinds.empty()) config.rotary = std::move(rotary);
}

/// Calls `read` with the object in the file, if it is there; errors name the file.
template <class Read>
void read_if_there(const fs::path& file, const Read& read) {
    if (!fs::exists(file)) return;
    const nlohmann::json json = read_json_object(file);
    try {
        read(json);
    } catch (const InvalidArgument& error) {
        refuse_argument(ErrorCode::file_invalid, file, ": ", error.what());
    }
}

}  // namespace

ModelFolder::ModelFolder(const fs::path& path, bool save_beside)
    : m_path(resolve_model(path, "openvino_model.xml", save_beside)) {}

ModelFolder::ModelFolder(GraphBuffers buffers) : m_buffers(std::move(buffers)) {}

ModelFolder ModelFolder::head() const {
    ModelFolder head = *this;
    head.m_is_head = true;
    check_argument(!m_buffers && fs::exists(head.model_xml()), ErrorCode::model_unsupported,
                   ParameterName("speculation"), " is 'mtp', but ", model_xml(),
                   " has no head that guesses further tokens beside it (", mtp_model,
                   "); allowed for this model: auto, off");
    return head;
}

fs::path ModelFolder::model_xml() const {
    if (m_buffers) return "the model in memory";
    return m_path / (m_is_head ? mtp_model : "openvino_model.xml");
}

std::shared_ptr<ov::Model> ModelFolder::read_decoder(ov::Core& core) const {
    return m_buffers ? read_graph(core, *m_buffers, model_xml()) : read_graph(core, model_xml());
}

fs::path ModelFolder::generation_config_json() const {
    return m_buffers ? fs::path() : m_path / "generation_config.json";
}

ModelConfig ModelFolder::read_config() const {
    ModelConfig config;
    if (m_buffers) return config;
    read_if_there(m_path / "config.json",
                  [&](const nlohmann::json& json) { config = derive_config(json); });
    read_if_there(m_path / "pagewheel.json",
                  [&](const nlohmann::json& json) { update(config, json); });
    return config;
}

}  // namespace pagewheel
