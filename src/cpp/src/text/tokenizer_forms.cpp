// What a Tokenizer does to several texts, by what it does to one.
#include "base/check.hpp"
#include "pagewheel/tokenizer.hpp"

namespace pagewheel {
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
