// What the JSON files beside a tokenizer say of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "openvino/core/model.hpp"
#include "text/chat_format.hpp"

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

/// Of `folder`, which is empty where there is none, and of what the conversion left in the graph.
/// Throws InvalidArgument that names the damaged file.
TokenizerFiles read_tokenizer_files(const std::filesystem::path& folder, const ov::Model& tokenizer,
                                    const std::vector<std::string>& vocabulary);

}  // namespace pagewheel
