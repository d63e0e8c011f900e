// Changes to the graphs of openvino-tokenizers, whose options are constants inside them.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/graph_file.hpp"
#include "openvino/core/model.hpp"
#include "openvino/runtime/core.hpp"

namespace pagewheel {

/// libopenvino_tokenizers.so: $PAGEWHEEL_TOKENIZERS_LIBRARY, else beside OpenVINO's own package in
/// site-packages. Throws Error that says what to install.
std::filesystem::path find_tokenizers_extension();

/// A tokenizer or detokenizer. Throws InvalidArgument where its tables of strings are
/// damaged: openvino-tokenizers reads them without a check of its own.
std::shared_ptr<ov::Model> read_string_graph(ov::Core& core, const std::filesystem::path& xml);
/// The same of a graph in memory, which errors call `name`.
std::shared_ptr<ov::Model> read_string_graph(ov::Core& core, const GraphBuffers& buffers,
                                             const std::string& name);

/// The side of padding that the conversion left in a tokenizer, if it did.
std::optional<bool> read_pads_right(const ov::Model& tokenizer);

/// Makes a tokenizer add no special tokens. False if it adds none anyway.
bool disable_added_tokens(const std::shared_ptr<ov::Model>& tokenizer);

/// Makes a detokenizer print special tokens, or leave them out.
void set_skip_special_tokens(const std::shared_ptr<ov::Model>& detokenizer, bool skip);

/// What a detokenizer's graph holds.
struct DetokenizerTables {
    std::vector<std::string> vocabulary;  ///< bytes by id; empty if the graph has another form
    std::vector<int32_t> special_tokens;  ///< ids that are left out on request
    /// The graph only joins the tokens' bytes, as byte-level vocabularies are decoded...
    bool joins_bytes = false;
    /// ...and then drops a space at the start, as SentencePiece does that put one there.
    bool strips_first_space = false;
};
DetokenizerTables read_detokenizer_tables(const std::shared_ptr<ov::Model>& detokenizer);

}  // namespace pagewheel
