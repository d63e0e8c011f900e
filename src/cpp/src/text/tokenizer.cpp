#include "pagewheel/tokenizer.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/check.hpp"
#include "base/openvino_error.hpp"
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

ov::Tensor string_tensor(const std::string& text) {
    ov::Tensor tensor(ov::element::string, {1});
    tensor.data<std::string>()[0] = text;
    return tensor;
}

std::vector<int64_t> to_ids(const ov::Tensor& tensor) {
    const auto copy = [&](const auto* data) {
        return std::vector<int64_t>(data, data + tensor.get_size());
    };
    return tensor.get_element_type() == ov::element::i32 ? copy(tensor.data<const int32_t>())
                                                         : copy(tensor.data<const int64_t>());
}

}  // namespace

void StringGraph::compile(ov::Core& core) {
    const std::lock_guard lock(m_mutex);
    compile_once(core);
}

void StringGraph::compile_once(ov::Core& core) {
    if (m_request) return;
    // Single-threaded: these graphs are string operations, and threads would only be woken.
    ov::AnyMap properties{{"INFERENCE_NUM_THREADS", 1}, {"NUM_STREAMS", 1}};
    for (const auto& [key, value] : m_properties) properties[key] = value;
    try {
        m_request = core.compile_model(m_build(), "CPU", properties).create_infer_request();
    } catch (const ov::Exception& error) {
        throw std::invalid_argument(
            concat("the tokenizer cannot run with these properties: ", reason(error)));
    }
}

ov::Tensor StringGraph::run(ov::Core& core, const std::vector<ov::Tensor>& inputs) {
    m_process.check("tokenizer");
    const std::lock_guard lock(m_mutex);
    compile_once(core);
    for (size_t i = 0; i < inputs.size(); ++i) m_request.set_input_tensor(i, inputs[i]);
    m_request.start_async();  // with one thread, infer() can swallow a node's exception
    m_request.wait();
    const ov::Tensor shared = m_request.get_output_tensor(0);
    ov::Tensor output(shared.get_element_type(), shared.get_shape());
    shared.copy_to(output);
    return output;
}

ov::Core& Tokenizer::Impl::core() {
    return openvino_core_with(find_tokenizers_extension());
}

Tokenizer::Impl::Source Tokenizer::Impl::open(ov::Core& core, const fs::path& folder) {
    return {read_graph_in_folder(core, folder / "openvino_tokenizer.xml"),
            read_graph_in_folder(core, folder / "openvino_detokenizer.xml"), folder};
}

Tokenizer::Impl::Impl(ov::Core& core, const Source& source, const ov::AnyMap& properties)
    : m_core(core), m_tokenizer_model(source.tokenizer), m_detokenizer_model(source.detokenizer) {
    tables = read_detokenizer_tables(m_detokenizer_model);
    read_special_tokens(source.folder);
    read_limits(source.folder);
    read_chat_template(source.folder);
    m_is_special.resize(tables.vocabulary.size());
    for (int32_t id : tables.special_tokens)
        if (size_t(id) < m_is_special.size()) m_is_special[size_t(id)] = true;

    m_tokenizer = std::make_shared<StringGraph>(
        [model = m_tokenizer_model] { return model->clone(); }, properties);
    const auto plain = m_tokenizer_model->clone();
    m_plain_tokenizer = disable_added_tokens(plain)
                            ? std::make_shared<StringGraph>([plain] { return plain; }, properties)
                            : m_tokenizer;
    const auto detokenizer = [&](bool skip) {
        const auto build = [model = m_detokenizer_model, skip] {
            auto graph = model->clone();
            set_skip_special_tokens(graph, skip);
            return graph;
        };
        return std::make_shared<StringGraph>(build, properties);
    };
    m_detokenizer = detokenizer(true);
    m_verbatim_detokenizer = detokenizer(false);
    // A pipeline constructs its tokenizer beside compiling the model: what every prompt needs is
    // best compiled now.
    m_plain_tokenizer->compile(m_core);
    if (!tables.joins_bytes) m_detokenizer->compile(m_core);
}

void Tokenizer::Impl::read_special_tokens(const fs::path& folder) {
    const nlohmann::json config = read_if_there(folder, "tokenizer_config.json");
    const nlohmann::json map = read_if_there(folder, "special_tokens_map.json");
    const nlohmann::json model_config = read_if_there(folder, "config.json");
    const auto read = [&](const std::string& name, SpecialToken& token) {
        token.text = token_text(config, (name + "_token").c_str());
        if (token.text.empty()) token.text = token_text(map, (name + "_token").c_str());
        const std::string key = name + "_token_id";
        const auto id = model_config.find(key);
        if (m_tokenizer_model->has_rt_info(key))
            token.id = m_tokenizer_model->get_rt_info<int64_t>(key);
        else if (id != model_config.end() && id->is_number_integer())
            token.id = *id;
        else if (id != model_config.end() && id->is_array() && !id->empty())
            token.id = id->front();
        complete(token);
    };
    read("bos", bos);
    read("eos", eos);
    read("pad", pad);
    if (pad.id == -1) pad = eos;
}

void Tokenizer::Impl::complete(SpecialToken& token) const {
    const std::vector<std::string>& all = tables.vocabulary;
    if (token.id == -1 && !token.text.empty()) {
        const auto found = std::find(all.begin(), all.end(), token.text);
        if (found != all.end()) token.id = found - all.begin();
    } else if (token.text.empty() && token.id >= 0 && size_t(token.id) < all.size()) {
        token.text = all[size_t(token.id)];
    }
}

void Tokenizer::Impl::read_limits(const fs::path& folder) {
    const nlohmann::json config = read_if_there(folder, "tokenizer_config.json");
    const auto max_length = config.find("model_max_length");
    if (max_length != config.end() && max_length->is_number_unsigned()) m_max_length = *max_length;
    if (const auto pads_right = read_pads_right(*m_tokenizer_model))
        m_padding_side = *pads_right ? "right" : "left";
    else if (config.value("padding_side", nlohmann::json()) == "left")
        m_padding_side = "left";
}

void Tokenizer::Impl::read_chat_template(const fs::path& folder) {
    original_chat_template = find_chat_template(folder, *m_tokenizer_model);
    m_chat_template = original_chat_template;

    const nlohmann::json ours = read_if_there(folder, "pagewheel.json");
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

std::vector<int64_t> Tokenizer::Impl::encode(const std::vector<std::string>& text,
                                             bool add_special_tokens) {
    if (text.size() == 2 && !add_special_tokens) {
        // A graph of pairs has special tokens that cannot be told from the text's.
        std::vector<int64_t> ids = encode(std::vector{text[0]}, false);
        const std::vector<int64_t> second = encode(std::vector{text[1]}, false);
        ids.insert(ids.end(), second.begin(), second.end());
        return ids;
    }
    std::vector<ov::Tensor> inputs;
    for (const std::string& each : text) {
        check_utf8(each, "the text to encode");
        inputs.push_back(string_tensor(each));
    }
    if (text.size() == 1 && text.front().empty() && !add_special_tokens) return {};
    // No second text is an empty list of them.
    if (inputs.size() < m_tokenizer_model->inputs().size())
        inputs.emplace_back(ov::element::string, ov::Shape{0});
    const auto& graph = add_special_tokens ? m_tokenizer : m_plain_tokenizer;
    return to_ids(graph->run(m_core, inputs));
}

TokenizedInputs Tokenizer::Impl::encode(const std::vector<std::vector<std::string>>& texts,
                                        const EncodeOptions& options) {
    const std::string& side = options.padding_side.value_or(m_padding_side);
    const bool left = side == "left";
    check_argument(left || side == "right", "padding_side is '", side,
                   "'; allowed are 'left' and 'right'");
    const size_t own_limit = m_max_length > 0 ? m_max_length : std::numeric_limits<size_t>::max();
    const size_t limit = options.max_length.value_or(own_limit);
    check_argument(!options.pad_to_max_length || options.max_length || m_max_length > 0,
                   "pad_to_max_length is true; max_length must be set, as tokenizer_config.json "
                   "has no model_max_length");
    check_argument(!options.pad_to_max_length || limit <= most_padding, "max_length is ", limit,
                   " and pad_to_max_length is true; allowed: up to ", most_padding);

    std::vector<std::vector<int64_t>> rows;
    size_t width = options.pad_to_max_length ? limit : 0;
    for (const auto& text : texts) {
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
    return graph->run(m_core, {input}).data<const std::string>()[0];
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

Tokenizer::Tokenizer(const fs::path& model_folder, const ov::AnyMap& properties) {
    ov::Core& core = Impl::core();
    m_impl = make_shared_in_process<Impl>(core, Impl::open(core, model_folder), properties);
}

Tokenizer::Tokenizer(const std::string& tokenizer, const ov::Tensor& tokenizer_weights,
                     const std::string& detokenizer, const ov::Tensor& detokenizer_weights,
                     const ov::AnyMap& properties) {
    ov::Core& core = Impl::core();
    const Impl::Source source{
        read_string_graph(core, {tokenizer, tokenizer_weights}, "the tokenizer in memory"),
        read_string_graph(core, {detokenizer, detokenizer_weights}, "the detokenizer in memory"),
        {}};
    m_impl = make_shared_in_process<Impl>(core, source, properties);
}

std::vector<int64_t> Tokenizer::encode(const std::string& text, bool add_special_tokens) const {
    return m_impl->encode(std::vector{text}, add_special_tokens);
}
TokenizedInputs Tokenizer::encode(const std::vector<std::string>& texts,
                                  const EncodeOptions& options) const {
    std::vector<std::vector<std::string>> each;
    for (const std::string& text : texts) each.push_back({text});
    return m_impl->encode(each, options);
}

TokenizedInputs Tokenizer::encode(const std::vector<std::string>& firsts,
                                  const std::vector<std::string>& seconds,
                                  const EncodeOptions& options) const {
    check_argument(supports_paired_input(),
                   "pairs of texts were given, and this tokenizer takes one text at a time");
    const size_t a = firsts.size(), b = seconds.size();
    check_argument(a > 0 && b > 0 && (a == b || a == 1 || b == 1), "there are ", a, " first and ",
                   b, " second texts of pairs; allowed: as many of both, or one of either");
    std::vector<std::vector<std::string>> pairs;
    for (size_t i = 0; i < std::max(a, b); ++i)
        pairs.push_back({firsts[a == 1 ? 0 : i], seconds[b == 1 ? 0 : i]});
    return m_impl->encode(pairs, options);
}

bool Tokenizer::supports_paired_input() const {
    return m_impl->supports_paired_input();
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
