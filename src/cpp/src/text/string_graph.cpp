#include "text/string_graph.hpp"

#include <dlfcn.h>
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>
#include <set>

#include "base/check.hpp"
#include "model/graph_file.hpp"
#include "openvino/core/version.hpp"
#include "openvino/op/constant.hpp"
#include "openvino/op/slice.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel {

struct StringGraph::Turn {
    Turn(StringGraph& graph, ov::Core& core) : graph(graph), request(graph.take(core)) {}
    ~Turn() {
        const std::lock_guard lock(graph.m_mutex);
        graph.m_idle.push_back(std::move(request));
        graph.m_is_idle.notify_one();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    StringGraph& graph;
    ov::InferRequest request;
};

void StringGraph::compile(ov::Core& core) {
    const Turn turn(*this, core);
}

ov::InferRequest StringGraph::take(ov::Core& core) {
    std::unique_lock lock(m_mutex);
    m_is_idle.wait(lock, [&] { return !m_idle.empty() || m_num_requests < most_at_once; });
    if (m_idle.empty()) {
        m_idle.push_back(compiled(core));
        ++m_num_requests;
    }
    ov::InferRequest request = std::move(m_idle.back());
    m_idle.pop_back();
    return request;
}

ov::InferRequest StringGraph::compiled(ov::Core& core) const {
    // Single-threaded: these graphs are string operations, and threads would only be woken.
    ov::AnyMap properties{{"INFERENCE_NUM_THREADS", 1}, {"NUM_STREAMS", 1}};
    for (const auto& [key, value] : m_properties) properties[key] = value;
    try {
        return core.compile_model(m_build(), "CPU", properties).create_infer_request();
    } catch (const ov::Exception& error) {
        refuse_argument(ParameterName("properties", ""),
                        "the tokenizer cannot run with these properties: ", reason(error));
    }
}

ov::Tensor StringGraph::run(ov::Core& core, const std::vector<ov::Tensor>& inputs) {
    return run(core, inputs, {0}).front();
}

std::vector<ov::Tensor> StringGraph::run(ov::Core& core, const std::vector<ov::Tensor>& inputs,
                                         const std::vector<size_t>& outputs) {
    m_process.check("tokenizer");
    Turn turn(*this, core);
    for (size_t i = 0; i < inputs.size(); ++i) turn.request.set_input_tensor(i, inputs[i]);
    turn.request.start_async();  // with one thread, infer() can swallow a node's exception
    turn.request.wait();
    std::vector<ov::Tensor> copies;
    for (const size_t output : outputs) {
        const ov::Tensor shared = turn.request.get_output_tensor(output);
        shared.copy_to(copies.emplace_back(shared.get_element_type(), shared.get_shape()));
    }
    return copies;
}

namespace {

namespace fs = std::filesystem;
using ov::op::v0::Constant;

std::shared_ptr<ov::Node> find_node(const std::shared_ptr<ov::Model>& model, const char* type) {
    for (const auto& node : model->get_ordered_ops())
        if (std::string(node->get_type_name()) == type) return node;
    return nullptr;
}

}  // namespace

std::shared_ptr<ov::Model> read_string_graph(ov::Core& core, const fs::path& xml) {
    auto graph = read_graph(core, xml);
    check_string_graph(*graph, xml.string());
    return graph;
}

std::shared_ptr<ov::Model> read_string_graph(ov::Core& core, const GraphBuffers& buffers,
                                             const std::string& name) {
    auto graph = read_graph(core, buffers, name);
    check_string_graph(*graph, name);
    return graph;
}

std::optional<bool> read_pads_right(const ov::Model& tokenizer) {
    for (const auto& node : tokenizer.get_ops()) {
        if (std::string(node->get_type_name()) != "RaggedToDense") continue;
        if (const auto pads = find_attribute<bool>(*node, "pad_right")) return pads;
    }
    return std::nullopt;
}

fs::path find_tokenizers_extension() {
    if (const char* path = std::getenv("PAGEWHEEL_TOKENIZERS_LIBRARY")) return path;
    Dl_info openvino{};
    const bool found = dladdr(reinterpret_cast<void*>(&ov::get_openvino_version), &openvino) != 0;
    const fs::path site_packages =
        found ? fs::path(openvino.dli_fname).parent_path().parent_path().parent_path() : fs::path();
    const fs::path library = site_packages / "openvino_tokenizers/lib/libopenvino_tokenizers.so";
    check_argument(fs::exists(library), ErrorCode::dependency_missing, "there is no ", library,
                   ": run `pip install openvino-tokenizers==2026.4.*`, or set "
                   "PAGEWHEEL_TOKENIZERS_LIBRARY to the library's path");
    return library;
}

bool disable_added_tokens(const std::shared_ptr<ov::Model>& tokenizer) {
    // CombineSegments joins ragged pieces, each (begins, ends, ids). A piece of constants is a run
    // of added tokens; with its end at 0 it is empty.
    const auto combine = find_node(tokenizer, "CombineSegments");
    bool changed = false;
    for (size_t i = 0; combine && i + 2 < combine->get_input_size(); i += 3) {
        const auto end = constant_input(*combine, i + 1);
        if (!end || !constant_input(*combine, i) || !constant_input(*combine, i + 2)) continue;
        combine->input(i + 1).replace_source_output(
            Constant::create(end->get_element_type(), end->get_shape(), {0}));
        changed = true;
    }
    return changed;
}

void set_skip_special_tokens(const std::shared_ptr<ov::Model>& detokenizer, bool skip) {
    // VocabDecoder's input 4 lists the ids to skip; openvino-tokenizers slices it to all or none.
    const auto decoder = find_node(detokenizer, "VocabDecoder");
    if (!decoder || decoder->get_input_size() < 5) return;
    if (!skip) {
        decoder->input(4).replace_source_output(
            Constant::create(ov::element::i32, {0}, std::vector<int32_t>{}));
    } else if (const auto slice =
                   ov::as_type_ptr<ov::op::v8::Slice>(decoder->get_input_node_shared_ptr(4))) {
        const auto stop = constant_input(*slice, 2);
        if (stop)
            slice->input(2).replace_source_output(
                Constant::create(stop->get_element_type(), stop->get_shape(),
                                 {std::numeric_limits<int32_t>::max()}));
    }
}

namespace {

/// VocabDecoder's inputs 1 to 3: begin and end offset of each token, and all bytes.
std::vector<std::string> read_vocabulary(const ov::Node& decoder) {
    std::vector<std::string> vocabulary;
    const auto unpacked = decoder.get_input_node_shared_ptr(1);
    if (const auto strings =
            unpacked->get_input_size() == 1 ? constant_input(*unpacked, 0) : nullptr;
        strings && strings->get_element_type() == ov::element::string)
        return strings->cast_vector<std::string>();
    const StringTable table(decoder, 1);
    if (!table) return vocabulary;
    const auto begin = table.begins->cast_vector<int32_t>(),
               end = table.ends->cast_vector<int32_t>();
    const auto* text = static_cast<const char*>(table.bytes->get_data_ptr());
    for (size_t i = 0; i < begin.size(); ++i)
        vocabulary.emplace_back(text + begin[i], text + end[i]);
    return vocabulary;
}

/// VocabDecoder's input 4: a list, or all or none of one.
std::vector<int32_t> read_special_tokens(const ov::Node& decoder) {
    if (decoder.get_input_size() < 5) return {};
    auto node = decoder.get_input_node_shared_ptr(4);
    if (ov::is_type<ov::op::v8::Slice>(node)) node = node->get_input_node_shared_ptr(0);
    const auto ids = ov::as_type_ptr<Constant>(node);
    return ids ? ids->cast_vector<int32_t>() : std::vector<int32_t>();
}

/// A scalar string of openvino-tokenizers: a u8 constant.
std::string read_string(const ov::Node& node, size_t input) {
    const auto text = constant_input(node, input);
    if (!text || text->get_element_type() != ov::element::u8) return {};
    return {static_cast<const char*>(text->get_data_ptr()), text->get_byte_size()};
}

/// RegexNormalization's last two inputs: what to search and what to put there.
bool strips_first_space(const ov::Node& node) {
    const size_t inputs = node.get_input_size();
    if (std::string(node.get_type_name()) != "RegexNormalization" || inputs < 5) return false;
    const auto replacement = constant_input(node, inputs - 1);
    return read_string(node, inputs - 2) == "^ " && replacement &&
           replacement->get_byte_size() == 0;
}

}  // namespace

DetokenizerTables read_detokenizer_tables(const std::shared_ptr<ov::Model>& detokenizer) {
    static const std::set<std::string> joining{"Parameter",    "Convert",          "Constant",
                                               "Slice",        "VocabDecoder",     "FuzeRagged",
                                               "UTF8Validate", "StringTensorPack", "Result"};
    DetokenizerTables tables;
    const auto decoder = find_node(detokenizer, "VocabDecoder");
    if (!decoder || decoder->get_input_size() < 4) return tables;
    tables.vocabulary = read_vocabulary(*decoder);
    tables.special_tokens = read_special_tokens(*decoder);
    const auto nodes = detokenizer->get_ordered_ops();
    tables.strips_first_space = std::any_of(
        nodes.begin(), nodes.end(), [](const auto& node) { return strips_first_space(*node); });
    tables.joins_bytes =
        !tables.vocabulary.empty() && std::all_of(nodes.begin(), nodes.end(), [](const auto& node) {
            return joining.count(node->get_type_name()) != 0 || strips_first_space(*node);
        });
    return tables;
}

}  // namespace pagewheel
