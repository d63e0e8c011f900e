// Changes to the graphs of openvino-tokenizers, whose options are constants inside them.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "openvino/core/model.hpp"

namespace pagewheel {

/// libopenvino_tokenizers.so: $PAGEWHEEL_TOKENIZERS_LIBRARY, else beside OpenVINO's own package in
/// site-packages. Throws std::runtime_error that says what to install.
std::filesystem::path find_tokenizers_extension();

/// Makes a tokenizer add no special tokens. False if it adds none anyway.
bool disable_added_tokens(const std::shared_ptr<ov::Model>& tokenizer);

/// Makes a detokenizer print special tokens, or leave them out.
void set_skip_special_tokens(const std::shared_ptr<ov::Model>& detokenizer, bool skip);

/// The vocabulary that a detokenizer's graph holds, by id. Empty if the graph has another form.
std::vector<std::string> read_vocabulary(const std::shared_ptr<ov::Model>& detokenizer);

}  // namespace pagewheel
