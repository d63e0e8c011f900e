// The graphs of openvino-tokenizers, whose options are constants inside them.
#pragma once

#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/process.hpp"
#include "model/graph_file.hpp"
#include "openvino/core/model.hpp"
#include "openvino/op/constant.hpp"
#include "openvino/runtime/core.hpp"
#include "openvino/runtime/infer_request.hpp"

namespace pagewheel {

/// A string graph for any thread. It is compiled once more where several run it at once, up to
/// most_at_once, so that a short text does not wait for a long one. run() throws in a child that
/// fork() made.
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
    /// The named outputs, likewise.
    std::vector<ov::Tensor> run(ov::Core& core, const std::vector<ov::Tensor>& inputs,
                                const std::vector<size_t>& outputs);

private:
    static constexpr size_t most_at_once = 4;

    /// Holds a request for one thread.
    struct Turn;
    ov::InferRequest take(ov::Core& core);
    ov::InferRequest compiled(ov::Core& core) const;

    const ProcessMark m_process;
    const Build m_build;
    const ov::AnyMap m_properties;
    std::mutex m_mutex;  // guards what follows
    std::condition_variable m_is_idle;
    size_t m_num_requests = 0;
    std::vector<ov::InferRequest> m_idle;
};

/// libopenvino_tokenizers.so: $PAGEWHEEL_TOKENIZERS_LIBRARY, else beside OpenVINO's own package in
/// site-packages. Throws Error that says what to install.
std::filesystem::path find_tokenizers_extension();

/// A tokenizer or detokenizer. Throws InvalidArgument where its tables of strings are
/// damaged: openvino-tokenizers reads them without a check of its own.
std::shared_ptr<ov::Model> read_string_graph(ov::Core& core, const std::filesystem::path& xml);
/// A tokenizer or detokenizer in memory, which errors call `name`.
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

/// Null where the node's input is no constant.
std::shared_ptr<ov::op::v0::Constant> constant_input(const ov::Node& node, size_t index);

/// Inputs `first` to `first` + 2 of a node: the offsets where each string begins and ends, i32, and
/// the bytes of all, u8. False where they are no such constants.
struct StringTable {
    StringTable(const ov::Node& node, size_t first);
    explicit operator bool() const { return begins != nullptr; }
    size_t size() const { return ov::shape_size(begins->get_shape()); }

    std::shared_ptr<ov::op::v0::Constant> begins, ends, bytes;
};

/// Throws InvalidArgument, naming `where` and the node, for tables whose strings lie outside
/// of their bytes and for normalisation tables that lead out of themselves.
void check_string_graph(const ov::Model& graph, const std::string& where);

}  // namespace pagewheel
