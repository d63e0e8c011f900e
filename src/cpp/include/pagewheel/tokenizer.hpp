// Text to tokens and back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "openvino/core/any.hpp"
#include "openvino/runtime/tensor.hpp"
#include "pagewheel/chat_history.hpp"
#include "pagewheel/visibility.hpp"

namespace pagewheel {

/// A padded batch of token ids.
struct TokenizedInputs {
    ov::Tensor input_ids;       ///< i64 [batch, longest]
    ov::Tensor attention_mask;  ///< i64 [batch, longest]: 1 where a token is, 0 where padding is
};

struct EncodeOptions {
    bool add_special_tokens = true;
    bool pad_to_max_length = false;  ///< Pad to max_length, up to 2^24.
    std::optional<size_t>
        max_length;  ///< Of truncation and pad_to_max_length; unset: the folder's.
    /// "left" or "right"; unset: the folder's.
    std::optional<std::string> padding_side;
    bool truncation = false;  ///< Cut to max_length.
};

/// What a chat template is rendered from; the JSON strings are as in ChatHistory.
struct ChatTemplateInputs {
    std::string chat_template;  ///< Jinja source
    std::string messages_json;
    std::string tools_json;
    std::string extra_context_json;
    std::string bos_token;
    std::string eos_token;
    bool add_generation_prompt = true;
};
using ChatTemplateRenderer = std::function<std::string(const ChatTemplateInputs&)>;

/// Tokenizer of a model folder (openvino_tokenizer.xml, openvino_detokenizer.xml). Copies share one
/// implementation; all methods may be called from any thread.
class PAGEWHEEL_API Tokenizer {
public:
    /// Also takes a .gguf file or a Hugging Face folder, which the command `pagewheel` converts
    /// (docs/models.md). Throws InvalidArgument that names the missing or unreadable file, Error
    /// where there is no such command.
    /// `properties` are OpenVINO's for the CPU, which runs the tokenizer.
    explicit Tokenizer(const std::filesystem::path& model_folder,
                       const ov::AnyMap& properties = {});
    /// Takes what openvino_tokenizer.xml, openvino_detokenizer.xml and the .bin files (u8) would
    /// hold.
    Tokenizer(const std::string& tokenizer, const ov::Tensor& tokenizer_weights,
              const std::string& detokenizer, const ov::Tensor& detokenizer_weights,
              const ov::AnyMap& properties = {});

    /// Token ids of `text`, which must be UTF-8.
    std::vector<int64_t> encode(const std::string& text, bool add_special_tokens = true) const;
    TokenizedInputs encode(const std::vector<std::string>& texts,
                           const EncodeOptions& options) const;
    /// Pairs of texts, for tokenizers with two inputs. Either list may have one text, which then is
    /// in every pair. Throws InvalidArgument where supports_paired_input() is false.
    TokenizedInputs encode(const std::vector<std::string>& firsts,
                           const std::vector<std::string>& seconds,
                           const EncodeOptions& options) const;
    bool supports_paired_input() const;

    /// Ids outside the vocabulary, as of logits that are padded beyond it, have no text.
    std::string decode(const std::vector<int64_t>& tokens, bool skip_special_tokens = true) const;
    /// Decodes each row of an i64 or i32 [tokens] or [batch, tokens].
    std::vector<std::string> decode(const ov::Tensor& tokens,
                                    bool skip_special_tokens = true) const;
    std::vector<std::string> decode(const std::vector<std::vector<int64_t>>& rows,
                                    bool skip_special_tokens = true) const;

    /// The prompt of a conversation. Rendered by the renderer if one is set (Python sets one:
    /// Jinja2, within limits). Without one, plain chats are rendered from the pieces that
    /// conversion found in the template, all others by the program pagewheel-template, which is
    /// installed beside the library and has ten seconds and 512 MB (docs/chat_templates.md).
    ///
    /// Throws InvalidArgument that begins with "chat template" where the template refuses the
    /// conversation, fails or exceeds its limits, and for one that is not UTF-8. Throws Error where
    /// there is no template or no program.
    std::string apply_chat_template(const ChatHistory& history, bool add_generation_prompt,
                                    const std::string& chat_template = {}) const;
    /// Renders with tools, an array, and extra context, an object, in place of the history's.
    std::string apply_chat_template(
        const ChatHistory& history, bool add_generation_prompt, const std::string& chat_template,
        const std::optional<JsonContainer>& tools,
        const std::optional<JsonContainer>& extra_context = std::nullopt) const;
    /// Called by every thread that renders, several at once. A template is a stranger's program: a
    /// renderer that runs it should bound its time and memory.
    void set_chat_template_renderer(ChatTemplateRenderer renderer);
    std::string get_chat_template() const;  ///< Empty if the model has none.
    std::string get_original_chat_template() const;
    void set_chat_template(const std::string& chat_template);

    int64_t get_bos_token_id() const;  ///< -1 if the model has none, as for the next two
    int64_t get_eos_token_id() const;
    int64_t get_pad_token_id() const;
    std::string get_bos_token() const;
    std::string get_eos_token() const;
    std::string get_pad_token() const;

    /// Bytes of one token, special or not; by itself it need not be UTF-8. Empty for ids outside of
    /// the vocabulary.
    std::string token_bytes(int64_t id) const;
    /// Bytes of every token by id; a token is not always UTF-8 by itself.
    std::vector<std::string> get_vocab_vector() const;
    /// The vocabulary by its bytes: of tokens with the same ones the highest id.
    std::unordered_map<std::string, int64_t> get_vocab() const;

    class Impl;  // internal: text/tokenizer_impl.hpp
private:
    std::shared_ptr<Impl> m_impl;
};

}  // namespace pagewheel
