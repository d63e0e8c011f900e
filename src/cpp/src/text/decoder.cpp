#include "text/decoder.hpp"

#include <algorithm>

#include "text/utf8.hpp"

namespace pagewheel {

Decoder::Decoder(ov::Core& core, const std::shared_ptr<ov::Model>& model,
                 const ov::AnyMap& properties)
    : m_core(core),
      m_tables(read_detokenizer_tables(model)),
      m_takes_i64(model->input().get_element_type() == ov::element::i64),
      m_is_special(m_tables.vocabulary.size()) {
    for (int32_t id : m_tables.special_tokens)
        if (size_t(id) < m_is_special.size()) m_is_special[size_t(id)] = true;
    const auto graph = [&](bool skip) {
        const auto build = [model, skip] {
            auto clone = model->clone();
            set_skip_special_tokens(clone, skip);
            return clone;
        };
        return std::make_shared<StringGraph>(build, properties);
    };
    m_graph = graph(true);
    m_verbatim_graph = graph(false);
    if (!m_tables.joins_bytes) m_graph->compile(m_core);
}

std::string Decoder::decode(std::vector<int64_t> tokens, bool skip_special_tokens) {
    const auto is_unknown = [&](int64_t token) { return !has_token(token); };
    tokens.erase(std::remove_if(tokens.begin(), tokens.end(), is_unknown), tokens.end());
    if (tokens.empty()) return {};
    // Whatever made the bytes: openvino-tokenizers passes surrogates, for one.
    return replace_invalid_utf8(m_tables.joins_bytes ? join_bytes(tokens, skip_special_tokens)
                                                     : run_graph(tokens, skip_special_tokens));
}

bool Decoder::has_token(int64_t id) const {
    const size_t size = vocabulary().size();
    return id >= 0 && (size == 0 || size_t(id) < size);
}

std::string Decoder::join_bytes(const std::vector<int64_t>& tokens,
                                bool skip_special_tokens) const {
    std::string bytes;
    for (int64_t token : tokens)
        if (!skip_special_tokens || !m_is_special[size_t(token)])
            bytes += vocabulary()[size_t(token)];
    if (m_tables.strips_first_space && !bytes.empty() && bytes.front() == ' ') bytes.erase(0, 1);
    return bytes;
}

std::string Decoder::run_graph(const std::vector<int64_t>& tokens, bool skip_special_tokens) {
    ov::Tensor input(m_takes_i64 ? ov::element::i64 : ov::element::i32, {1, tokens.size()});
    if (m_takes_i64)
        std::copy(tokens.begin(), tokens.end(), input.data<int64_t>());
    else
        std::copy(tokens.begin(), tokens.end(), input.data<int32_t>());
    const auto& graph = skip_special_tokens ? m_graph : m_verbatim_graph;
    return graph->run(m_core, {input}).data<const std::string>()[0];
}

}  // namespace pagewheel
