// From text to token ids.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "openvino/runtime/core.hpp"
#include "pagewheel/tokenizer.hpp"
#include "text/string_graph.hpp"
#include "text/tokenizer_files.hpp"

namespace pagewheel {

/// A tokenizer's half that encodes.
class Encoder {
public:
    /// `core` must outlive it. `properties` are the caller's.
    Encoder(ov::Core& core, const std::shared_ptr<ov::Model>& model, const TokenizerFiles& files,
            const ov::AnyMap& properties);

    /// With a second text, which follows the first in a pair.
    std::vector<int64_t> encode(const std::vector<std::string>& text, bool add_special_tokens);
    /// Each a text or a pair.
    TokenizedInputs encode(const std::vector<std::vector<std::string>>& texts,
                           const EncodeOptions& options);
    /// Each without special tokens, as encode() gives it. Many at once take a hundredth of the
    /// time.
    std::vector<std::vector<int64_t>> encode_plain(const std::vector<std::string>& texts);
    bool takes_pairs() const { return m_inputs == 2; }

private:
    /// Rows cut as `options` say, and how wide they are padded.
    std::vector<std::vector<int64_t>> encode_rows(
        const std::vector<std::vector<std::string>>& texts, const EncodeOptions& options,
        size_t& width);

    ov::Core& m_core;
    size_t m_inputs;
    std::optional<size_t> m_mask;  // the output that tells tokens from padding
    std::shared_ptr<StringGraph> m_graph, m_plain_graph;  // with and without added tokens
    size_t m_max_length;                                  // 0: none
    std::string m_padding_side;
    int64_t m_pad;
};

}  // namespace pagewheel
