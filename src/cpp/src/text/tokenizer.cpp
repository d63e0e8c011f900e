#include "pagewheel/tokenizer.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/check.hpp"
#include "model/description_version.hpp"
#include "model/json_file.hpp"
#include "model/openvino_core.hpp"
#include "model/text_file.hpp"
#include "text/tokenizer_impl.hpp"
#include "text/utf8.hpp"

namespace pagewheel {
namespace {

namespace fs = std::filesystem;

// Tokens that a text is padded to: beyond any context, and no matter of memory.
constexpr size_t most_padding = size_t(1) << 24;

std::shared_ptr<ov::Model> read_graph_in_folder(ov::Core& core, const fs::path& file) {
    check_argument(fs::exists(file), "model folder ", file.parent_path(), " has no ",
                   file.filename().string());
    return read_string_graph(core, file);
}

/// `tokenizer_config.json` writes a token as a string or as {"content": ...}.
std::string token_text(const nlohmann::json& config, const char* key) {
    const auto token = config.find(key);
    if (token == config.end()) return {};
    if (token->is_string()) return *token;
    return token->is_object() ? token->value("content", std::string()) : std::string();
}

nlohmann::json read_if_there(const fs::path& file) {
    return fs::exists(file) ? read_json_object(file) : nlohmann::json::object();
}

}  // namespace

void StringGraph::compile(ov::Core& core) {
    const std::lock_guard lock(m_mutex);
    compile_once(core);
}

void StringGraph::compile_once(ov::Core& core) {
    if (m_request) return;
    // Single-threaded: these graphs are string operations, and threads would only be woken.
    const ov::AnyMap properties{{"INFERENCE_NUM_THREADS", 1}, {"NUM_STREAMS", 1}};
    m_request = core.compile_model(m_build(), "CPU", properties).create_infer_request();
}

ov::Tensor StringGraph::run(ov::Core& core, const ov::Tensor& input) {
    m_process.check("tokenizer");
    const std::lock_guard lock(m_mutex);
    compile_once(core);
    m_request.set_input_tensor(input);
    m_request.start_async();  // with one thread, infer() can swallow a node's exception
    m_request.wait();
    const ov::Tensor shared = m_request.get_output_tensor(0);
    ov::Tensor output(shared.get_element_type(), shared.get_shape());
    shared.copy_to(output);
    return output;
}

Tokenizer::Impl::Impl(const fs::path& folder)
    : m_core(openvino_core_with(find_tokenizers_extension())) {
    m_tokenizer_model = read_graph_in_folder(m_core, folder / "openvino_tokenizer.xml");
    m_detokenizer_model = read_graph_in_folder(m_core, folder / "openvino_detokenizer.xml");
    read_special_tokens(folder, *m_tokenizer_model);
    read_chat_template(folder, *m_tokenizer_model);
    tables = read_detokenizer_tables(m_detokenizer_model);
    m_is_special.resize(tables.vocabulary.size());
    for (int32_t id : tables.special_tokens)
        if (size_t(id) < m_is_special.size()) m_is_special[size_t(id)] = true;

    m_tokenizer =
        std::make_shared<StringGraph>([model = m_tokenizer_model] { return model->clone(); });
    const auto plain = m_tokenizer_model->clone();
    m_plain_tokenizer = disable_added_tokens(plain)
                            ? std::make_shared<StringGraph>([plain] { return plain; })
                            : m_tokenizer;
    const auto detokenizer = [model = m_detokenizer_model](bool skip) {
        return std::make_shared<StringGraph>([model, skip] {
            auto graph = model->clone();
            set_skip_special_tokens(graph, skip);
            return graph;
        });
    };
    m_detokenizer = detokenizer(true);
    m_verbatim_detokenizer = detokenizer(false);
    // A pipeline constructs its tokenizer beside compiling the model: what every prompt needs is
    // best compiled now.
    m_plain_tokenizer->compile(m_core);
    if (!tables.joins_bytes) m_detokenizer->compile(m_core);
}

void Tokenizer::Impl::read_special_tokens(const fs::path& folder, const ov::Model& tokenizer) {
    const nlohmann::json config = read_if_there(folder / "tokenizer_config.json");
    const nlohmann::json model_config = read_if_there(folder / "config.json");
    const auto read = [&](const std::string& name, SpecialToken& token) {
        token.text = token_text(config, (name + "_token").c_str());
        const std::string key = name + "_token_id";
        const auto id = model_config.find(key);
        if (tokenizer.has_rt_info(key))
            token.id = tokenizer.get_rt_info<int64_t>(key);
        else if (id != model_config.end() && id->is_number_integer())
            token.id = *id;
        else if (id != model_config.end() && id->is_array() && !id->empty())
            token.id = id->front();
    };
    read("bos", bos);
    read("eos", eos);
    read("pad", pad);
    const auto max_length = config.find("model_max_length");
    if (max_length != config.end() && max_length->is_number_unsigned()) m_max_length = *max_length;
}

void Tokenizer::Impl::read_chat_template(const fs::path& folder, const ov::Model& tokenizer) {
    const nlohmann::json config = read_if_there(folder / "tokenizer_config.json");
    const auto found = config.find("chat_template");
    if (fs::exists(folder / "chat_template.jinja")) {
        original_chat_template = read_text(folder / "chat_template.jinja");
    } else if (found != config.end() && found->is_string()) {
        original_chat_template = *found;
    } else if (found != config.end() && found->is_array()) {
        for (const auto& entry : *found)
            if (entry.value("name", std::string()) == "default")
                original_chat_template = entry.value("template", std::string());
    } else if (tokenizer.has_rt_info("chat_template")) {
        original_chat_template = tokenizer.get_rt_info<std::string>("chat_template");
    }
    m_chat_template = original_chat_template;

    const nlohmann::json ours = read_if_there(folder / "pagewheel.json");
    try {
        check_description_version(ours);
        m_chat_format = ChatFormat::from_json(ours.value("chat_format", nlohmann::json()));
    } catch (const std::invalid_argument& error) {
        throw std::invalid_argument(concat(folder / "pagewheel.json", ": ", error.what()));
    } catch (const nlohmann::json::exception& error) {
        throw std::invalid_argument(
            concat(folder / "pagewheel.json", ": chat_format: ", error.what()));
    }
}

std::vector<int64_t> Tokenizer::Impl::encode(const std::string& text, bool add_special_tokens) {
    check_utf8(text, "the text to encode");
    if (text.empty() && !add_special_tokens) return {};
    ov::Tensor input(ov::element::string, {1});
    input.data<std::string>()[0] = text;
    const ov::Tensor ids =
        (add_special_tokens ? m_tokenizer : m_plain_tokenizer)->run(m_core, input);
    if (ids.get_element_type() == ov::element::i32)
        return {ids.data<const int32_t>(), ids.data<const int32_t>() + ids.get_size()};
    return {ids.data<const int64_t>(), ids.data<const int64_t>() + ids.get_size()};
}

TokenizedInputs Tokenizer::Impl::encode(const std::vector<std::string>& texts,
                                        const EncodeOptions& options) {
    const bool left = options.padding_side == "left";
    check_argument(left || options.padding_side == "right", "padding_side is '",
                   options.padding_side, "'; allowed are 'left' and 'right'");
    check_argument(!options.pad_to_max_length || options.max_length,
                   "pad_to_max_length needs max_length");
    check_argument(!options.pad_to_max_length || *options.max_length <= most_padding,
                   "max_length is ", options.max_length.value_or(0),
                   " and pad_to_max_length is true; allowed: up to ", most_padding);
    const size_t most = std::numeric_limits<size_t>::max();
    const size_t limit = options.max_length.value_or(m_max_length > 0 ? m_max_length : most);

    std::vector<std::vector<int64_t>> rows;
    size_t width = options.pad_to_max_length ? *options.max_length : 0;
    for (const std::string& text : texts) {
        rows.push_back(encode(text, options.add_special_tokens));
        if (options.truncation && rows.back().size() > limit) rows.back().resize(limit);
        width = std::max(width, rows.back().size());
    }

    TokenizedInputs batch{ov::Tensor(ov::element::i64, {rows.size(), width}),
                          ov::Tensor(ov::element::i64, {rows.size(), width})};
    std::fill_n(batch.input_ids.data<int64_t>(), rows.size() * width, std::max<int64_t>(pad.id, 0));
    std::fill_n(batch.attention_mask.data<int64_t>(), rows.size() * width, 0);
    for (size_t i = 0; i < rows.size(); ++i) {
        const size_t begin = i * width + (left ? width - rows[i].size() : 0);
        std::copy(rows[i].begin(), rows[i].end(), batch.input_ids.data<int64_t>() + begin);
        std::fill_n(batch.attention_mask.data<int64_t>() + begin, rows[i].size(), 1);
    }
    return batch;
}

std::string Tokenizer::Impl::decode(const std::vector<int64_t>& tokens, bool skip_special_tokens) {
    if (tokens.empty()) return {};
    // The graph reads its table without a check of its own.
    for (int64_t token : tokens)
        if (!has_token(token))
            throw std::out_of_range(
                concat("token id ", token, " is outside of [0, ", tables.vocabulary.size(), ")"));
    // Whatever made the bytes: openvino-tokenizers passes surrogates, for one.
    return replace_invalid_utf8(tables.joins_bytes ? join_bytes(tokens, skip_special_tokens)
                                                   : run_detokenizer(tokens, skip_special_tokens));
}

bool Tokenizer::Impl::has_token(int64_t id) const {
    const size_t size = tables.vocabulary.size();
    return id >= 0 && (size == 0 || size_t(id) < size);
}

std::string Tokenizer::Impl::join_bytes(const std::vector<int64_t>& tokens,
                                        bool skip_special_tokens) const {
    std::string bytes;
    for (int64_t token : tokens)
        if (!skip_special_tokens || !m_is_special[size_t(token)])
            bytes += tables.vocabulary[size_t(token)];
    if (tables.strips_first_space && !bytes.empty() && bytes.front() == ' ') bytes.erase(0, 1);
    return bytes;
}

std::string Tokenizer::Impl::run_detokenizer(const std::vector<int64_t>& tokens,
                                             bool skip_special_tokens) {
    const bool wide = m_detokenizer_model->input().get_element_type() == ov::element::i64;
    ov::Tensor input(wide ? ov::element::i64 : ov::element::i32, {1, tokens.size()});
    if (wide)
        std::copy(tokens.begin(), tokens.end(), input.data<int64_t>());
    else
        std::copy(tokens.begin(), tokens.end(), input.data<int32_t>());
    const auto& graph = skip_special_tokens ? m_detokenizer : m_verbatim_detokenizer;
    return graph->run(m_core, input).data<const std::string>()[0];
}

std::string Tokenizer::Impl::apply_chat_template(const ChatHistory& history,
                                                 bool add_generation_prompt,
                                                 const std::string& other_template) const {
    const std::string source = other_template.empty() ? chat_template() : other_template;
    if (source.empty())
        throw std::runtime_error("the model has no chat template; give one, or plain text");
    check_utf8(source, "the chat template");
    if (const ChatTemplateRenderer renderer = this->renderer())
        return renderer({source, history.messages_json(), history.tools_json(),
                         history.extra_context_json(), bos.text, eos.text, add_generation_prompt});
    std::vector<std::pair<std::string, std::string>> plain;
    if (!m_chat_format || source != original_chat_template || !history.as_plain(plain))
        throw std::runtime_error(
            "this chat needs Jinja (tools, extra context, another template, or a template that is "
            "not "
            "made of fixed pieces): set a renderer with Tokenizer::set_chat_template_renderer");
    return m_chat_format->render(plain, add_generation_prompt);
}

std::unique_lock<std::mutex> Tokenizer::Impl::lock_chat() const {
    m_process.check("tokenizer");
    return std::unique_lock(m_chat_mutex);
}

std::string Tokenizer::Impl::chat_template() const {
    const auto lock = lock_chat();
    return m_chat_template;
}

void Tokenizer::Impl::set_chat_template(std::string chat_template) {
    const auto lock = lock_chat();
    m_chat_template.swap(chat_template);
}

ChatTemplateRenderer Tokenizer::Impl::renderer() const {
    const auto lock = lock_chat();
    return m_renderer;
}

void Tokenizer::Impl::set_renderer(ChatTemplateRenderer renderer) {
    const auto lock = lock_chat();
    m_renderer.swap(renderer);  // the old one goes with the parameter, after the lock
}

Tokenizer::Tokenizer(const fs::path& model_folder)
    : m_impl(make_shared_in_process<Impl>(model_folder)) {}

std::vector<int64_t> Tokenizer::encode(const std::string& text, bool add_special_tokens) const {
    return m_impl->encode(text, add_special_tokens);
}
TokenizedInputs Tokenizer::encode(const std::vector<std::string>& texts,
                                  const EncodeOptions& options) const {
    return m_impl->encode(texts, options);
}
std::string Tokenizer::decode(const std::vector<int64_t>& tokens, bool skip_special_tokens) const {
    return m_impl->decode(tokens, skip_special_tokens);
}

std::string Tokenizer::decode_generated(std::vector<int64_t> tokens,
                                        bool skip_special_tokens) const {
    const auto unknown = [&](int64_t token) { return !m_impl->has_token(token); };
    tokens.erase(std::remove_if(tokens.begin(), tokens.end(), unknown), tokens.end());
    return m_impl->decode(tokens, skip_special_tokens);
}
std::string Tokenizer::apply_chat_template(const ChatHistory& history, bool add_generation_prompt,
                                           const std::string& chat_template) const {
    return m_impl->apply_chat_template(history, add_generation_prompt, chat_template);
}
void Tokenizer::set_chat_template_renderer(ChatTemplateRenderer renderer) {
    m_impl->set_renderer(std::move(renderer));
}
std::string Tokenizer::get_chat_template() const {
    return m_impl->chat_template();
}
std::string Tokenizer::get_original_chat_template() const {
    return m_impl->original_chat_template;
}
void Tokenizer::set_chat_template(const std::string& chat_template) {
    m_impl->set_chat_template(chat_template);
}
int64_t Tokenizer::get_bos_token_id() const {
    return m_impl->bos.id;
}
int64_t Tokenizer::get_eos_token_id() const {
    return m_impl->eos.id;
}
int64_t Tokenizer::get_pad_token_id() const {
    return m_impl->pad.id;
}
std::string Tokenizer::get_bos_token() const {
    return m_impl->bos.text;
}
std::string Tokenizer::get_eos_token() const {
    return m_impl->eos.text;
}
std::string Tokenizer::get_pad_token() const {
    return m_impl->pad.text;
}
std::vector<std::string> Tokenizer::get_vocab_vector() const {
    return m_impl->tables.vocabulary;
}

}  // namespace pagewheel
