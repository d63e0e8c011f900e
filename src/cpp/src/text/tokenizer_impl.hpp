// The implementation behind Tokenizer's handle.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "grammar/grammar_compiler.hpp"
#include "openvino/core/model.hpp"
#include "openvino/runtime/core.hpp"
#include "pagewheel/tokenizer.hpp"
#include "text/chat_template.hpp"
#include "text/string_graph.hpp"

namespace pagewheel {

struct SpecialToken {
    int64_t id = -1;
    std::string text;
};

struct TokenizerFiles {
    SpecialToken bos, eos, pad;
    size_t max_length = 0;  ///< tokenizer_config.json's model_max_length; 0: none
    std::string padding_side = "right";
    std::string chat_template;
    std::optional<ChatFormat> chat_format;
};

/// Reads `folder`, which is empty where there is none, and what the conversion left in the graph.
/// Throws InvalidArgument that names the damaged file.
TokenizerFiles read_tokenizer_files(const std::filesystem::path& folder, const ov::Model& tokenizer,
                                    const std::vector<std::string>& vocabulary);

/// A tokenizer's half that encodes.
class Encoder {
public:
    /// `core` must outlive it. `properties` are the caller's.
    Encoder(ov::Core& core, const std::shared_ptr<ov::Model>& model, const TokenizerFiles& files,
            const ov::AnyMap& properties);

    /// `text` may have a second text, which follows the first in a pair.
    std::vector<int64_t> encode(const std::vector<std::string>& text, bool add_special_tokens);
    /// Encodes each text as encode() does. Many at once take a hundredth of the time.
    std::vector<std::vector<int64_t>> encode_all(const std::vector<std::string>& texts,
                                                 bool add_special_tokens);
    /// The rows as a batch, cut and padded as `options` say.
    TokenizedInputs pad(std::vector<std::vector<int64_t>> rows, const EncodeOptions& options) const;
    bool takes_pairs() const { return m_inputs == 2; }

private:
    ov::Core& m_core;
    size_t m_inputs;
    std::optional<size_t> m_mask;  // the output that tells tokens from padding
    std::shared_ptr<StringGraph> m_graph, m_plain_graph;  // with and without added tokens
    size_t m_max_length;                                  // 0: none
    std::string m_padding_side;
    int64_t m_pad;
};

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

class GrammarCompiler;

class Tokenizer::Impl {
public:
    /// The graphs, and the folder whose other files tell more; empty where there is none.
    struct Source {
        std::shared_ptr<ov::Model> tokenizer, detokenizer;
        std::filesystem::path folder;
    };
    Impl(ov::Core& core, const Source& source, const ov::AnyMap& properties);
    /// Opens whatever resolve_model() takes.
    static Source open(ov::Core& core, const std::filesystem::path& path);
    static ov::Core& core();
    static const std::shared_ptr<Impl>& of(const Tokenizer& tokenizer) { return tokenizer.m_impl; }

    Decoder decoder;
    const TokenizerFiles files;
    Encoder encoder;
    ChatTemplate chat;

    std::mutex grammars_mutex;
    std::shared_ptr<GrammarCompiler> grammars;  // made by grammar_compiler()
};

/// The tokenizer's only one. It lives as long as its last owner; with the tokenizer gone no
/// grammar forces tokens any more. Throws InvalidArgument where the tokenizer's graph does
/// not tell the tokens' bytes.
std::shared_ptr<GrammarCompiler> grammar_compiler(const Tokenizer& tokenizer);

}  // namespace pagewheel
