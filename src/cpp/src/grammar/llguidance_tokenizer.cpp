#include "grammar/llguidance_tokenizer.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel::llguidance {
namespace {

constexpr size_t most_tokenized_texts = 4096;
constexpr size_t longest_kept_text = 256;
// What the library knows a special token by: this byte, then its name.
constexpr char special_mark = '\xff';

}  // namespace

SharedTokenizer::SharedTokenizer(GrammarVocabulary vocabulary)
    : m_api(load()), m_vocabulary(std::move(vocabulary)), m_is_special(m_vocabulary.tokens.size()) {
    for (const int64_t token : m_vocabulary.special_tokens) m_is_special.at(size_t(token)) = true;
    list_texts();

    std::vector<uint32_t> lengths;
    std::string bytes;
    for (size_t i = 0; i < m_vocabulary.tokens.size(); ++i) {
        const std::string& token = m_vocabulary.tokens[i];
        const size_t begin = bytes.size();
        if (m_is_special[i]) bytes += special_mark;
        bytes += token;
        lengths.push_back(uint32_t(bytes.size() - begin));
    }
    // The library's own end of text, behind the vocabulary: which tokens really end a text differs
    // from request to request, so matchers add them.
    const std::string end_of_text = std::string(1, special_mark) + "<|end of text|>";
    lengths.push_back(uint32_t(end_of_text.size()));
    bytes += end_of_text;
    TokenizerOptions options = {};
    options.struct_size = sizeof(options);
    options.token_count = uint32_t(lengths.size());
    options.end_token = uint32_t(m_vocabulary.tokens.size());
    options.token_lengths = lengths.data();
    options.token_bytes = reinterpret_cast<const uint8_t*>(bytes.data());
    options.tokenize_only_utf8 = true;
    options.tokenize = &SharedTokenizer::tokenize_bytes;
    options.user = this;
    char error[1000] = "";
    m_handle = m_api.new_tokenizer_v2(&options, error, sizeof(error));
    if (!m_handle) throw Error(concat("llguidance refuses the vocabulary: ", error));
}

SharedTokenizer::~SharedTokenizer() {
    m_api.free_tokenizer(m_handle);
}

void SharedTokenizer::list_texts() {
    for (size_t i = 0; i < m_vocabulary.tokens.size(); ++i) {
        const std::string& token = m_vocabulary.tokens[i];
        if (m_is_special[i] || token.empty()) continue;
        m_longest_token = std::max(m_longest_token, token.size());
        const auto [first, is_new] = m_by_text.emplace(token, uint32_t(i));
        if (!is_new) m_twins.emplace_back(first->second, uint32_t(i));
    }
}

std::vector<int64_t> SharedTokenizer::tokenize_greedily(const std::string& text) const {
    std::vector<int64_t> tokens;
    for (size_t at = 0; at < text.size();) {
        size_t length = std::min(m_longest_token, text.size() - at);
        while (length > 1 && m_by_text.count(text.substr(at, length)) == 0) --length;
        const auto found = m_by_text.find(text.substr(at, length));
        if (found == m_by_text.end()) return tokens;
        tokens.push_back(found->second);
        at += length;
    }
    return tokens;
}

std::vector<int64_t> SharedTokenizer::tokenize(const std::string& text) const {
    {
        const std::lock_guard<std::mutex> lock(m_mutex);
        const auto found = m_tokenized.find(text);
        if (found != m_tokenized.end()) return found->second;
    }
    std::vector<int64_t> tokens = m_vocabulary.tokenize(text);
    // A text in which a special token's name stands: here it is text.
    const auto is_named = [&](int64_t token) { return is_special(token); };
    if (tokens.empty() || std::any_of(tokens.begin(), tokens.end(), is_named))
        tokens = tokenize_greedily(text);
    if (text.size() <= longest_kept_text) {
        const std::lock_guard<std::mutex> lock(m_mutex);
        if (m_tokenized.size() >= most_tokenized_texts) m_tokenized.clear();
        m_tokenized.emplace(text, tokens);
    }
    return tokens;
}

size_t SharedTokenizer::tokenize_bytes(const void* user, const uint8_t* bytes, size_t byte_count,
                                       uint32_t* tokens, size_t room) {
    const auto& self = *static_cast<const SharedTokenizer*>(user);
    const std::string text(reinterpret_cast<const char*>(bytes), byte_count);
    std::vector<int64_t> found;
    try {
        found = self.tokenize(text);
    } catch (...) {  // it is called by Rust, which no exception may pass
        found = self.tokenize_greedily(text);
    }
    for (size_t i = 0; i < std::min(found.size(), room); ++i) tokens[i] = uint32_t(found[i]);
    return found.size();
}

}  // namespace pagewheel::llguidance
