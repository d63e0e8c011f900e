#include "model/model_folder.hpp"

#include "check.hpp"
#include "model/json_file.hpp"

namespace pagewheel {
namespace fs = std::filesystem;

ModelFolder::ModelFolder(const fs::path& path) : m_path(path) {
    check_argument(fs::exists(path), "model folder ", path, " does not exist");
    check_argument(
        fs::is_directory(path), path,
        " is a file; a folder with openvino_model.xml is needed (`pagewheel convert` makes "
        "one from a .gguf file)");
    check_argument(fs::exists(model_xml()), path, " holds no openvino_model.xml");
}

ModelConfig ModelFolder::read_config() const {
    const fs::path file = m_path / "config.json";
    ModelConfig config;
    if (!fs::exists(file)) return config;
    const nlohmann::json json = read_json_object(file);
    const auto size = [&](const char* key) {
        const auto value = json.find(key);
        return value != json.end() && value->is_number_unsigned() ? value->get<size_t>() : 0;
    };
    config.max_position_embeddings = size("max_position_embeddings");
    config.vocab_size = size("vocab_size");
    const auto type = json.find("model_type");
    if (type != json.end() && type->is_string()) config.model_type = *type;
    return config;
}

GenerationConfig ModelFolder::read_generation_config() const {
    const fs::path file = m_path / "generation_config.json";
    return fs::exists(file) ? GenerationConfig(file) : GenerationConfig();
}

}  // namespace pagewheel
