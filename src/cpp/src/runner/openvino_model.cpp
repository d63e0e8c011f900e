#include "runner/openvino_model.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/log.hpp"
#include "cache/prefix_file.hpp"
#include "graph/compile_model.hpp"
#include "model/openvino_core.hpp"
#include "model/port_names.hpp"
#include "openvino/core/version.hpp"
#include "openvino/runtime/profiling_info.hpp"
#include "openvino/runtime/properties.hpp"
#include "ops/native_region.hpp"
#include "pagewheel/errors.hpp"
#include "runner/attention_inputs.hpp"

namespace pagewheel {
namespace {

Checksum checksum_of_model(const std::filesystem::path& xml) {
    check_argument(std::filesystem::exists(xml), "prefixes of ", xml,
                   " cannot be saved or loaded: no file tells it from others");
    Checksum checksum;
    std::vector<char> piece(size_t(1) << 20);
    for (const char* extension : {".xml", ".bin"}) {
        std::ifstream file(std::filesystem::path(xml).replace_extension(extension),
                           std::ios::binary);
        while (file.read(piece.data(), std::streamsize(piece.size())), file.gcount() > 0)
            checksum.add(piece.data(), size_t(file.gcount()));
    }
    return checksum;
}

/// Libraries of operations, for all models that the process reads from now on.
void add_extensions(const ov::AnyMap& properties) {
    const auto found = properties.find("extensions");
    if (found == properties.end()) return;
    for (const auto& library : found->second.as<std::vector<std::filesystem::path>>()) try {
            openvino_core_with(library);
        } catch (const ov::Exception& error) {
            throw InvalidArgument(
                concat("extensions holds ", library, ", which cannot be loaded: ", reason(error)));
        }
}

}  // namespace

OpenVinoModel::OpenVinoModel(CompiledGraph graph)
    : m_graph(std::move(graph)), m_request(m_graph.model.create_infer_request()) {
    const ov::CompiledModel& model = m_graph.model;
    m_vocabulary = size_t(model.output(ports::logits).get_partial_shape()[1].get_length());
    for (size_t i = 0; i < model.outputs().size(); ++i) {
        const ov::Output<const ov::Node>& output = model.outputs()[i];
        if (output.get_names().count(ports::logits) != 0) m_logits_output = i;
        if (output.get_names().count(ports::last_hidden_state) == 0) continue;
        m_hidden_output = i;
        m_hidden_size = size_t(output.get_partial_shape()[1].get_length());
    }
    m_hidden_input = InputTensor(model, ports::hidden_states);

    m_tokens = TokenInputs(model);
    const std::vector<RotaryKind> rotated =
        m_graph.options.rotates ? m_graph.rotary.kinds : std::vector<RotaryKind>();
    if (NativeAttentionInputs::serves(model))
        m_attention.push_back(std::make_unique<NativeAttentionInputs>(
            model, m_graph.options.evicts ? m_graph.layers : std::vector<CacheLayer>(), rotated,
            m_graph.geometry.block_size, m_graph.has_logits_indices));
    if (!m_graph.openvino_layers.empty()) {
        m_attention.push_back(std::make_unique<OpenVinoAttentionInputs>(
            model, m_graph.openvino_layers, m_graph.geometry, m_graph.rotary));
        m_rotated_in_place = rotated;
        m_blocks = BlockLayout::rows;
    } else if (OpenVinoAttentionInputs::serves(model)) {
        m_attention.push_back(std::make_unique<OpenVinoAttentionInputs>(model));
    }
}

size_t OpenVinoModel::num_threads() const {
    if (!m_graph.options.on_cpu) return 1;
    return size_t(std::max(1, m_graph.model.get_property(ov::inference_num_threads)));
}

size_t OpenVinoModel::most_exact_rows() const {
    // OpenVINO's linear layers, which exact activations need, have kernels of their own.
    const auto& options = m_graph.options;
    if (options.batch_invariant || options.exact_activations)
        return std::numeric_limits<size_t>::max();
    return kernels::most_exact_rows(options.activations, detected_isa());
}

std::string OpenVinoModel::cache_description() const {
    const CacheGeometry& geometry = m_graph.geometry;
    std::ostringstream text;
    text << "model " << std::hex << checksum_of_model(m_graph.model_xml).value() << std::dec
         << "\ndevice " << m_graph.options.device << ", OpenVINO "
         << ov::get_openvino_version().buildNumber << m_graph.options.cache_properties
         << "\nblocks of " << geometry.block_size << " tokens in " << geometry.ports.size()
         << " caches";
    // Layers are alike for the most part: say a shape where it changes.
    const auto describe = [&](const std::vector<CachePort>& ports) {
        const CachePort* previous = nullptr;
        for (const CachePort& port : ports) {
            const bool same = previous && previous->type == port.type &&
                              previous->block_shape == port.block_shape;
            if (!same) text << ", " << port.type << " " << port.block_shape;
            previous = &port;
        }
    };
    describe(geometry.ports);
    if (!geometry.states.empty()) text << "\nstates of " << geometry.states.size() << " layers";
    describe(geometry.states);
    return text.str();
}

void OpenVinoModel::allocate_cache(size_t num_blocks) {
    m_cache = std::make_unique<KvCache>(m_graph.geometry, num_blocks, m_graph.model,
                                        m_graph.options.on_cpu);
    m_cache->bind(m_request);
}

std::vector<ov::ProfilingInfo> OpenVinoModel::profile() const {
    using std::chrono::duration_cast;
    using std::chrono::microseconds;
    std::vector<ov::ProfilingInfo> nodes = m_request.get_profiling_info();
    for (const auto& plan : m_graph.regions) {
        const auto means = plan->profile().means();
        if (means.empty()) continue;
        RegionProfile::Clock::duration inside{0};
        for (size_t i = 0; i < means.size(); ++i) {
            const RegionStep& step = plan->description().steps[i];
            ov::ProfilingInfo info;
            info.status = ov::ProfilingInfo::Status::EXECUTED;
            info.real_time = info.cpu_time = std::chrono::round<microseconds>(means[i]);
            info.node_name = step.name;
            info.node_type = step.op->get_type_name();
            info.exec_type = "pagewheel";
            inside += means[i];
            nodes.push_back(info);
        }
        for (ov::ProfilingInfo& node : nodes)
            if (node.node_name == plan->description().name) {
                node.real_time -= std::min(node.real_time, duration_cast<microseconds>(inside));
                node.cpu_time = node.real_time;
            }
    }
    return nodes;
}

std::vector<LayerCache> OpenVinoModel::layer_caches() const {
    // The geometry's ports are key and value of each cache, in the order of the caches.
    std::vector<LayerCache> caches;
    const std::vector<CacheLayer>& layers = m_attention.front()->layers();
    for (size_t l = 0; l < layers.size(); ++l)
        caches.emplace_back(layers[l], m_cache->data(2 * l), m_cache->data(2 * l + 1), m_blocks);
    return caches;
}

Logits OpenVinoModel::run(const Batch& batch, const std::vector<size_t>& windows) {
    const auto begin = std::chrono::steady_clock::now();
    for (const BlockCopy& copy : batch.copies) m_cache->copy_block(copy.from, copy.to);
    m_tokens.fill(m_request, batch, windows);
    for (const auto& attention : m_attention) attention->fill(m_request, batch, windows);
    const auto filled = std::chrono::steady_clock::now();
    try {
        m_request.start_async();  // infer() with one thread can swallow a node's exception
        m_request.wait();
    } catch (const ov::Exception& error) {
        throw Error(concat("the model cannot compute this: ", reason(error)));
    }
    const auto done = std::chrono::steady_clock::now();
    m_times.fill = std::chrono::duration<double, std::micro>(filled - begin).count();
    m_times.infer = std::chrono::duration<double, std::micro>(done - filled).count();
    ov::Tensor logits = m_request.get_output_tensor(m_logits_output);
    size_t rows = 0;
    for (const BatchEntry& entry : batch.entries) rows += entry.num_logits;
    check_invariant(logits.get_shape()[0] >= rows, "the model gave ", logits.get_shape()[0],
                    " rows of logits for ", rows);
    return {logits.data<float>(), rows, m_vocabulary};
}

const float* OpenVinoModel::hidden_states() {
    if (m_hidden_size == 0) return nullptr;
    return m_request.get_output_tensor(m_hidden_output).data<const float>();
}

float* OpenVinoModel::hidden_input(size_t num_tokens) {
    return m_hidden_input.resize<float>(m_request, num_tokens, m_hidden_size);
}

std::unique_ptr<OpenVinoModel> load_model(const ModelFolder& folder, const std::string& device,
                                          const ov::AnyMap& properties,
                                          const CacheEvictionConfig* eviction,
                                          const ModelFolder* partner) {
    add_extensions(properties);
    ov::Core& core = openvino_core();
    CompileOptions options =
        parse_compile_options(device, properties, eviction, core.get_available_devices());
    if (partner) options.partner = *partner;
    CompiledGraph graph = compile_model(core, folder, options);
    for (const std::string& sentence : graph.warnings) log(LogLevel::WARNING, sentence);
    return std::make_unique<OpenVinoModel>(std::move(graph));
}

}  // namespace pagewheel
