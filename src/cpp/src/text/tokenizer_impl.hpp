// The implementation behind Tokenizer's handle.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/process_mark.hpp"
#include "openvino/runtime/core.hpp"
#include "openvino/runtime/infer_request.hpp"
#include "pagewheel/tokenizer.hpp"
#include "text/chat_format.hpp"
#include "text/tokenizer_graph.hpp"

namespace pagewheel {

/// A compiled string graph, run by one thread at a time. run() throws in a child that fork() made.
class StringGraph {
public:
    using Build = std::function<std::shared_ptr<ov::Model>()>;
    /// `properties` are the caller's.
    StringGraph(Build build, ov::AnyMap properties)
        : m_build(std::move(build)), m_properties(std::move(properties)) {}

    /// Compiles the graph now instead of at its first run.
    void compile(ov::Core& core);
    /// Output 0 for `inputs`; a tensor of its own.
    ov::Tensor run(ov::Core& core, const std::vector<ov::Tensor>& inputs);

private:
    void compile_once(ov::Core& core);

    const ProcessMark m_process;
    Build m_build;
    const ov::AnyMap m_properties;
    std::mutex m_mutex;
    ov::InferRequest m_request;
};

class Tokenizer::Impl {
public:
    /// The graphs, and the folder whose other files tell more; empty where there is none.
    struct Source {
        std::shared_ptr<ov::Model> tokenizer, detokenizer;
        std::filesystem::path folder;
    };
    Impl(ov::Core& core, const Source& source, const ov::AnyMap& properties);
    static Source open(ov::Core& core, const std::filesystem::path& folder);
    static ov::Core& core();

    /// With a second text, which follows the first in a pair.
    std::vector<int64_t> encode(const std::vector<std::string>& text, bool add_special_tokens);
    /// Each a text or a pair.
    TokenizedInputs encode(const std::vector<std::vector<std::string>>& texts,
                           const EncodeOptions& options);
    bool supports_paired_input() const { return m_tokenizer_model->inputs().size() == 2; }
    std::string decode(const std::vector<int64_t>& tokens, bool skip_special_tokens);
    bool has_token(int64_t id) const;
    std::string apply_chat_template(const ChatHistory& history, bool add_generation_prompt,
                                    const std::string& chat_template) const;

    struct SpecialToken {
        int64_t id = -1;
        std::string text;
    };
    SpecialToken bos, eos, pad;
    std::string original_chat_template;
    DetokenizerTables tables;

    std::string chat_template() const;
    void set_chat_template(std::string chat_template);
    ChatTemplateRenderer renderer() const;
    void set_renderer(ChatTemplateRenderer renderer);

private:
    void read_special_tokens(const std::filesystem::path& folder);
    void complete(SpecialToken& token) const;
    void read_limits(const std::filesystem::path& folder);
    std::string join_bytes(const std::vector<int64_t>& tokens, bool skip_special_tokens) const;
    std::string run_detokenizer(const std::vector<int64_t>& tokens, bool skip_special_tokens);
    void read_chat_template(const std::filesystem::path& folder);

    ov::Core& m_core;
    std::shared_ptr<ov::Model> m_tokenizer_model, m_detokenizer_model;
    std::shared_ptr<StringGraph> m_tokenizer, m_plain_tokenizer;  // with and without added tokens
    std::shared_ptr<StringGraph> m_detokenizer,
        m_verbatim_detokenizer;      // special tokens: skip, print
    std::vector<bool> m_is_special;  // by id
    std::optional<ChatFormat> m_chat_format;
    // What may change while other threads render. Copied under the mutex, never used under it: a
    // renderer takes its time, and Python's waits for the GIL.
    /// Throws in a child that fork() made.
    std::unique_lock<std::mutex> lock_chat() const;

    const ProcessMark m_process;
    mutable std::mutex m_chat_mutex;
    std::string m_chat_template;
    ChatTemplateRenderer m_renderer;
    size_t m_max_length = 0;  // tokenizer_config.json's model_max_length; 0: none
    std::string m_padding_side = "right";
};

}  // namespace pagewheel
