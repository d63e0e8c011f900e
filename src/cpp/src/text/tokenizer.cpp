#include "pagewheel/tokenizer.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "base/process.hpp"
#include "model/model_source.hpp"
#include "model/openvino_core.hpp"
#include "pagewheel/errors.hpp"
#include "text/tokenizer_impl.hpp"

namespace pagewheel {
namespace {

namespace fs = std::filesystem;

std::shared_ptr<ov::Model> read_graph_in_folder(ov::Core& core, const fs::path& file) {
    check_argument(fs::exists(file), ErrorCode::model_not_found, "model folder ",
                   file.parent_path(), " has no ", file.filename().string());
    return read_string_graph(core, file);
}

}  // namespace

ov::Core& Tokenizer::Impl::core() {
    return openvino_core_with(find_tokenizers_extension());
}

Tokenizer::Impl::Source Tokenizer::Impl::open(ov::Core& core, const fs::path& path) {
    const fs::path folder = resolve_model(path, "openvino_tokenizer.xml");
    return {read_graph_in_folder(core, folder / "openvino_tokenizer.xml"),
            read_graph_in_folder(core, folder / "openvino_detokenizer.xml"), folder};
}

Tokenizer::Impl::Impl(ov::Core& core, const Source& source, const ov::AnyMap& properties)
    : decoder(core, source.detokenizer, properties),
      files(read_tokenizer_files(source.folder, *source.tokenizer, decoder.vocabulary())),
      encoder(core, source.tokenizer, files, properties),
      chat(files.chat_template, files.chat_format, files.bos.text, files.eos.text) {}

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
    return m_impl->encoder.encode(std::vector{text}, add_special_tokens);
}
TokenizedInputs Tokenizer::encode(const std::vector<std::string>& texts,
                                  const EncodeOptions& options) const {
    Encoder& encoder = m_impl->encoder;
    return encoder.pad(encoder.encode_all(texts, options.add_special_tokens), options);
}

TokenizedInputs Tokenizer::encode(const std::vector<std::string>& firsts,
                                  const std::vector<std::string>& seconds,
                                  const EncodeOptions& options) const {
    check_argument(supports_paired_input(), ParameterName("prompts", "pairs of texts"),
                   " were given, and this tokenizer takes one text at a time");
    const size_t a = firsts.size(), b = seconds.size();
    check_argument(a > 0 && b > 0 && (a == b || a == 1 || b == 1), ParameterName("prompts", ""),
                   "there are ", a, " first and ", b,
                   " second texts of pairs; allowed: as many of both, or one of either");
    std::vector<std::vector<int64_t>> rows;
    for (size_t i = 0; i < std::max(a, b); ++i)
        rows.push_back(m_impl->encoder.encode({firsts[a == 1 ? 0 : i], seconds[b == 1 ? 0 : i]},
                                              options.add_special_tokens));
    return m_impl->encoder.pad(std::move(rows), options);
}

bool Tokenizer::supports_paired_input() const {
    return m_impl->encoder.takes_pairs();
}
std::string Tokenizer::decode(const std::vector<int64_t>& tokens, bool skip_special_tokens) const {
    return m_impl->decoder.decode(tokens, skip_special_tokens);
}
std::string Tokenizer::apply_chat_template(const ChatHistory& history, bool add_generation_prompt,
                                           const std::string& chat_template) const {
    return m_impl->chat.render(history, add_generation_prompt, chat_template);
}
void Tokenizer::set_chat_template_renderer(ChatTemplateRenderer renderer) {
    m_impl->chat.set_renderer(std::move(renderer));
}
std::string Tokenizer::get_chat_template() const {
    return m_impl->chat.source();
}
std::string Tokenizer::get_original_chat_template() const {
    return m_impl->chat.original();
}
void Tokenizer::set_chat_template(const std::string& chat_template) {
    m_impl->chat.set_source(chat_template);
}
int64_t Tokenizer::get_bos_token_id() const {
    return m_impl->files.bos.id;
}
int64_t Tokenizer::get_eos_token_id() const {
    return m_impl->files.eos.id;
}
int64_t Tokenizer::get_pad_token_id() const {
    return m_impl->files.pad.id;
}
std::string Tokenizer::get_bos_token() const {
    return m_impl->files.bos.text;
}
std::string Tokenizer::get_eos_token() const {
    return m_impl->files.eos.text;
}
std::string Tokenizer::get_pad_token() const {
    return m_impl->files.pad.text;
}
std::string Tokenizer::token_bytes(int64_t id) const {
    if (!m_impl->decoder.has_token(id)) return {};
    const std::vector<std::string>& vocabulary = m_impl->decoder.vocabulary();
    return vocabulary.empty() ? m_impl->decoder.decode({id}, /*skip_special_tokens=*/false)
                              : vocabulary[size_t(id)];
}
std::vector<std::string> Tokenizer::get_vocab_vector() const {
    return m_impl->decoder.vocabulary();
}

namespace {

template <class T>
std::vector<std::vector<int64_t>> rows_of(const T* data, size_t height, size_t width) {
    std::vector<std::vector<int64_t>> rows;
    for (size_t i = 0; i < height; ++i) rows.emplace_back(data + i * width, data + (i + 1) * width);
    return rows;
}

}  // namespace

std::vector<std::string> Tokenizer::decode(const std::vector<std::vector<int64_t>>& rows,
                                           bool skip_special_tokens) const {
    std::vector<std::string> texts;
    for (const std::vector<int64_t>& row : rows) texts.push_back(decode(row, skip_special_tokens));
    return texts;
}

std::vector<std::string> Tokenizer::decode(const ov::Tensor& tokens,
                                           bool skip_special_tokens) const {
    check_argument(bool(tokens), ParameterName("tokens", "a tensor of tokens"), " is empty");
    const ov::Shape shape = tokens.get_shape();
    check_argument(shape.size() == 1 || shape.size() == 2,
                   ParameterName("tokens", "a tensor of tokens"), " has shape ", shape,
                   "; expected [tokens] or [batch, tokens]");
    const size_t height = shape.size() == 2 ? shape[0] : 1, width = shape.back();
    const ov::element::Type type = tokens.get_element_type();
    check_argument(type == ov::element::i64 || type == ov::element::i32,
                   ParameterName("tokens", "a tensor of tokens"), " has type ", type,
                   "; expected i64 or i32");
    return decode(type == ov::element::i64 ? rows_of(tokens.data<const int64_t>(), height, width)
                                           : rows_of(tokens.data<const int32_t>(), height, width),
                  skip_special_tokens);
}

std::string Tokenizer::apply_chat_template(
    const ChatHistory& history, bool add_generation_prompt, const std::string& chat_template,
    const std::optional<JsonContainer>& tools,
    const std::optional<JsonContainer>& extra_context) const {
    ChatHistory with = history;
    if (tools) with.set_tools(*tools);
    if (extra_context) with.set_extra_context(*extra_context);
    return apply_chat_template(with, add_generation_prompt, chat_template);
}

std::unordered_map<std::string, int64_t> Tokenizer::get_vocab() const {
    std::unordered_map<std::string, int64_t> ids;
    const std::vector<std::string> tokens = get_vocab_vector();
    for (size_t id = 0; id < tokens.size(); ++id) ids[tokens[id]] = int64_t(id);
    return ids;
}

}  // namespace pagewheel
