#include "text/tokenizer_impl.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.hpp"
#include "model/json_file.hpp"
#include "pagewheel/errors.hpp"
#include "text/string_graph.hpp"

namespace pagewheel {
namespace {

namespace fs = std::filesystem;

/// `tokenizer_config.json` writes a token as a string or as {"content": ...}.
std::string token_text(const nlohmann::json& config, const char* key) {
    const auto token = config.find(key);
    if (token == config.end()) return {};
    if (token->is_string()) return *token;
    return token->is_object() ? token->value("content", std::string()) : std::string();
}

/// Empty where there is no folder or no such file.
nlohmann::json read_if_there(const fs::path& folder, const char* name) {
    const bool is_there = !folder.empty() && fs::exists(folder / name);
    return is_there ? read_json_object(folder / name) : nlohmann::json::object();
}

/// A "chat_template", which may be a list of templates with names.
std::string template_in(const nlohmann::json& config) {
    const auto found = config.find("chat_template");
    if (found == config.end()) return {};
    if (found->is_string()) return *found;
    if (found->is_array())
        for (const auto& entry : *found)
            if (entry.value("name", std::string()) == "default")
                return entry.value("template", std::string());
    return {};
}

/// The first that is not empty, in the order in which transformers lets one go before the other;
/// then what the graph holds.
std::string find_chat_template(const fs::path& folder, const ov::Model& tokenizer) {
    if (!folder.empty() && fs::exists(folder / "chat_template.jinja"))
        return read_text(folder / "chat_template.jinja");
    for (const char* file :
         {"chat_template.json", "processor_config.json", "tokenizer_config.json"})
        if (std::string found = template_in(read_if_there(folder, file)); !found.empty())
            return found;
    return tokenizer.has_rt_info("chat_template")
               ? tokenizer.get_rt_info<std::string>("chat_template")
               : std::string();
}

/// Finds the one of id and text that is missing, if the vocabulary has it.
void complete(SpecialToken& token, const std::vector<std::string>& vocabulary) {
    if (token.id == -1 && !token.text.empty()) {
        const auto found = std::find(vocabulary.begin(), vocabulary.end(), token.text);
        if (found != vocabulary.end()) token.id = found - vocabulary.begin();
    } else if (token.text.empty() && token.id >= 0 && size_t(token.id) < vocabulary.size()) {
        token.text = vocabulary[size_t(token.id)];
    }
}

void read_special_tokens(const fs::path& folder, const ov::Model& tokenizer,
                         const std::vector<std::string>& vocabulary, TokenizerFiles& files) {
    const nlohmann::json config = read_if_there(folder, "tokenizer_config.json");
    const nlohmann::json map = read_if_there(folder, "special_tokens_map.json");
    const nlohmann::json model_config = read_if_there(folder, "config.json");
    const auto read = [&](const std::string& name, SpecialToken& token) {
        token.text = token_text(config, (name + "_token").c_str());
        if (token.text.empty()) token.text = token_text(map, (name + "_token").c_str());
        const std::string key = name + "_token_id";
        const auto id = model_config.find(key);
        if (tokenizer.has_rt_info(key))
            token.id = tokenizer.get_rt_info<int64_t>(key);
        else if (id != model_config.end() && id->is_number_integer())
            token.id = *id;
        else if (id != model_config.end() && id->is_array() && !id->empty())
            token.id = id->front();
        complete(token, vocabulary);
    };
    read("bos", files.bos);
    read("eos", files.eos);
    read("pad", files.pad);
    if (files.pad.id == -1) files.pad = files.eos;
}

void read_limits(const fs::path& folder, const ov::Model& tokenizer, TokenizerFiles& files) {
    const nlohmann::json config = read_if_there(folder, "tokenizer_config.json");
    const auto max_length = config.find("model_max_length");
    if (max_length != config.end() && max_length->is_number_unsigned())
        files.max_length = *max_length;
    if (const auto pads_right = read_pads_right(tokenizer))
        files.padding_side = *pads_right ? "right" : "left";
    else if (config.value("padding_side", nlohmann::json()) == "left")
        files.padding_side = "left";
}

std::optional<ChatFormat> read_chat_format(const fs::path& folder) {
    const nlohmann::json ours = read_if_there(folder, "pagewheel.json");
    try {
        check_description_version(ours);
        return ChatFormat::from_json(ours.value("chat_format", nlohmann::json()));
    } catch (const InvalidArgument& error) {
        refuse_argument(ErrorCode::file_invalid, folder / "pagewheel.json", ": ", error.what());
    } catch (const nlohmann::json::exception& error) {
        refuse_argument(ErrorCode::file_invalid, folder / "pagewheel.json",
                        ": chat_format: ", error.what());
    }
}

}  // namespace

TokenizerFiles read_tokenizer_files(const fs::path& folder, const ov::Model& tokenizer,
                                    const std::vector<std::string>& vocabulary) {
    TokenizerFiles files;
    read_special_tokens(folder, tokenizer, vocabulary, files);
    read_limits(folder, tokenizer, files);
    files.chat_template = find_chat_template(folder, tokenizer);
    files.chat_format = read_chat_format(folder);
    return files;
}

}  // namespace pagewheel
