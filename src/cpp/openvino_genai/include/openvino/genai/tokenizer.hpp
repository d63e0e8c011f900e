// Text to tokens and back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "openvino/core/any.hpp"
#include "openvino/genai/names.hpp"
#include "openvino/runtime/properties.hpp"
#include "openvino/runtime/tensor.hpp"

namespace pagewheel::openvino_genai {

inline constexpr ov::Property<bool> add_special_tokens{"add_special_tokens"};
inline constexpr ov::Property<bool> skip_special_tokens{"skip_special_tokens"};
inline constexpr ov::Property<bool> pad_to_max_length{"pad_to_max_length"};
inline constexpr ov::Property<std::string> padding_side{"padding_side"};
using pagewheel::properties::max_length;

/// pagewheel::Tokenizer, but encode() gives tensors, and options are properties by name. An unknown
/// one is an InvalidArgument.
class Tokenizer : public pagewheel::Tokenizer {
public:
    using Texts = std::vector<std::string>;
    using Pairs = std::vector<std::pair<std::string, std::string>>;

    explicit Tokenizer(const std::filesystem::path& models_path, const ov::AnyMap& properties = {})
        : pagewheel::Tokenizer(models_path, properties) {}
    template <class First, class... Properties, class = IfProperties<void, First, Properties...>>
    Tokenizer(const std::filesystem::path& models_path, First&& first, Properties&&... rest)
        : Tokenizer(models_path,
                    ov::AnyMap{std::forward<First>(first), std::forward<Properties>(rest)...}) {}
    Tokenizer(const std::string& tokenizer, const ov::Tensor& tokenizer_weights,
              const std::string& detokenizer, const ov::Tensor& detokenizer_weights,
              const ov::AnyMap& properties = {})
        : pagewheel::Tokenizer(tokenizer, tokenizer_weights, detokenizer, detokenizer_weights,
                               properties) {}
    /// One graph is not enough: generating needs both.
    Tokenizer(const std::string& model_str, const ov::Tensor& weights_tensor,
              const ov::AnyMap& properties = {}) = delete;
    Tokenizer(const pagewheel::Tokenizer& tokenizer) : pagewheel::Tokenizer(tokenizer) {}

    /// i64 [batch, longest]. Options: add_special_tokens, padding_side, pad_to_max_length and
    /// max_length, to which that pads.
    TokenizedInputs encode(const std::string& prompt, const ov::AnyMap& options = {}) const {
        return encode(Texts{prompt}, options);
    }
    TokenizedInputs encode(const Texts& prompts, const ov::AnyMap& options = {}) const {
        return pagewheel::Tokenizer::encode(prompts, encode_options(options));
    }
    TokenizedInputs encode(const std::initializer_list<std::string>& prompts,
                           const ov::AnyMap& options = {}) const {
        return encode(Texts(prompts), options);
    }
    TokenizedInputs encode(const Texts& prompts_1, const Texts& prompts_2,
                           const ov::AnyMap& options = {}) const {
        return pagewheel::Tokenizer::encode(prompts_1, prompts_2, encode_options(options));
    }
    TokenizedInputs encode(const Pairs& prompts, const ov::AnyMap& options = {}) const {
        Texts firsts, seconds;
        for (const auto& [first, second] : prompts) {
            firsts.push_back(first);
            seconds.push_back(second);
        }
        return encode(firsts, seconds, options);
    }
    template <class Prompts, class First, class... Properties>
    IfProperties<TokenizedInputs, First, Properties...> encode(const Prompts& prompts,
                                                               First&& first,
                                                               Properties&&... rest) const {
        return encode(prompts,
                      ov::AnyMap{std::forward<First>(first), std::forward<Properties>(rest)...});
    }

    /// The option is skip_special_tokens.
    std::string decode(const std::vector<int64_t>& tokens, const ov::AnyMap& options = {}) const {
        return pagewheel::Tokenizer::decode(tokens, skips(options));
    }
    Texts decode(const ov::Tensor& tokens, const ov::AnyMap& options = {}) const {
        return pagewheel::Tokenizer::decode(tokens, skips(options));
    }
    Texts decode(const std::vector<std::vector<int64_t>>& rows,
                 const ov::AnyMap& options = {}) const {
        return pagewheel::Tokenizer::decode(rows, skips(options));
    }
    template <class Tokens, class First, class... Properties>
    auto decode(const Tokens& tokens, First&& first, Properties&&... rest) const
        -> IfProperties<decltype(decode(tokens)), First, Properties...> {
        return decode(tokens,
                      ov::AnyMap{std::forward<First>(first), std::forward<Properties>(rest)...});
    }

private:
    template <class T>
    static T value_of(const std::string& name, const ov::Any& value) {
        try {
            return value.as<T>();
        } catch (const ov::Exception&) {
            throw InvalidArgument("tokenization parameter '" + name + "' is of another type");
        }
    }
    [[noreturn]] static void refuse(const std::string& name, const char* known) {
        throw InvalidArgument("unknown tokenization parameter '" + name + "'; known are: " + known);
    }

    static EncodeOptions encode_options(const ov::AnyMap& properties) {
        EncodeOptions options;
        for (const auto& [name, value] : properties)
            if (name == "add_special_tokens") {
                options.add_special_tokens = value_of<bool>(name, value);
            } else if (name == "pad_to_max_length") {
                options.pad_to_max_length = value_of<bool>(name, value);
            } else if (name == "max_length") {
                options.max_length = value_of<size_t>(name, value);
            } else if (name == "padding_side") {
                options.padding_side = value_of<std::string>(name, value);
            } else {
                refuse(name, "add_special_tokens, max_length, pad_to_max_length, padding_side");
            }
        return options;
    }
    static bool skips(const ov::AnyMap& properties) {
        bool skips = true;
        for (const auto& [name, value] : properties) {
            if (name != "skip_special_tokens") refuse(name, "skip_special_tokens");
            skips = value_of<bool>(name, value);
        }
        return skips;
    }
};

}  // namespace pagewheel::openvino_genai
