// From token ids to text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "openvino/runtime/core.hpp"
#include "text/string_graph.hpp"
#include "text/tokenizer_graph.hpp"

namespace pagewheel {

/// A tokenizer's half that decodes.
class Decoder {
public:
    /// `core` must outlive it. `properties` are the caller's.
    Decoder(ov::Core& core, const std::shared_ptr<ov::Model>& model, const ov::AnyMap& properties);

    /// Ids outside the vocabulary have no text.
    std::string decode(std::vector<int64_t> tokens, bool skip_special_tokens);
    bool has_token(int64_t id) const;
    const std::vector<std::string>& vocabulary() const { return m_tables.vocabulary; }
    const std::vector<int32_t>& special_tokens() const { return m_tables.special_tokens; }

private:
    std::string join_bytes(const std::vector<int64_t>& tokens, bool skip_special_tokens) const;
    std::string run_graph(const std::vector<int64_t>& tokens, bool skip_special_tokens);

    ov::Core& m_core;
    DetokenizerTables m_tables;
    bool m_takes_i64;
    std::shared_ptr<StringGraph> m_graph, m_verbatim_graph;  // special tokens: skip, print
    std::vector<bool> m_is_special;                          // by id
};

}  // namespace pagewheel
