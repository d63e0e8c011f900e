#include "runtime/model_runner.hpp"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string_view>

#include "cache/checksum.hpp"
#include "check.hpp"
#include "graph/fuse_linear.hpp"
#include "graph/gather_logits.hpp"
#include "graph/native_attention.hpp"
#include "graph/outer_products.hpp"
#include "graph/paged_attention.hpp"
#include "graph/quantized_linear.hpp"
#include "graph/share_constants.hpp"
#include "kernels/isa.hpp"
#include "model/graph_file.hpp"
#include "model/openvino_core.hpp"
#include "openvino/core/version.hpp"
#include "openvino/op/util/multi_subgraph_base.hpp"
#include "openvino/runtime/properties.hpp"
#include "openvino_error.hpp"
#include "runtime/native_attention_inputs.hpp"
#include "runtime/openvino_attention_inputs.hpp"

namespace pagewheel {
namespace {

/// The error if `device` ("CPU", "GPU", "GPU.1", ...) is not there.
void check_device(ov::Core& core, const std::string& device) {
    const auto devices = core.get_available_devices();
    const auto serves = [&](const std::string& available) {
        // Of several GPUs "GPU" means the first; they are listed as GPU.0, GPU.1, ...
        return available == device || available == device + ".0";
    };
    if (std::any_of(devices.begin(), devices.end(), serves)) return;
    std::string list;
    for (const std::string& available : devices) list += (list.empty() ? "" : ", ") + available;
    throw std::invalid_argument(
        concat("device '", device, "' is not available; available: ", list));
}

/// In f16 the plugin computes only where the processor has AVX512-FP16, elsewhere silently in f32.
/// There its attention over paged caches gives zeros, and what lies between pagewheel's operations,
/// which read and write f32, would become f16. Refused everywhere, so that no processor decides.
void check_precision(const std::string& device, const ov::AnyMap& properties) {
    const auto precision = properties.find(ov::hint::inference_precision.name());
    if (device != "CPU" || precision == properties.end()) return;
    const auto asked = precision->second.as<std::string>();
    bool is_f16 = false;
    try {
        is_f16 = ov::element::Type(asked) == ov::element::f16;
    } catch (const ov::Exception&) {  // no type at all: the plugin says so
    }
    check_argument(!is_f16, precision->first, " is ", asked,
                   " and the device is CPU; allowed: f32, bf16");
}

/// The decoder may be a stranger's. Once the process has a tokenizer, OpenVINO also reads
/// openvino-tokenizers' operations, which trust their tables.
void check_operations(const ov::Model& model, const std::filesystem::path& xml) {
    for (const auto& node : model.get_ops()) {
        const char* opset = node->get_type_info().version_id;
        check_argument(!opset || std::string_view(opset) != "extension", xml, ": the operation ",
                       node->get_type_name(), " (", node->get_friendly_name(),
                       ") is not OpenVINO's own; allowed in a decoder: those of its opsets");
        if (const auto outer = ov::as_type_ptr<ov::op::util::MultiSubGraphOp>(node))
            for (const auto& body : outer->get_functions()) check_operations(*body, xml);
    }
}

/// Properties of a named device inside of one property: OpenVINO takes them apart and gives them to
/// the plugin, past whatever is decided here by what the properties say.
void check_nested_properties(const ov::AnyMap& properties) {
    const std::string nested = ov::device::properties.name();
    for (const auto& [key, value] : properties)
        check_argument(key.compare(0, nested.size(), nested) != 0, "the property '", key,
                       "' is not supported: a model runs on one device; give its properties "
                       "themselves");
}

/// Whether operations of pagewheel's are in the graph.
bool has_native_operations(const ov::Model& model) {
    const auto nodes = model.get_ops();
    return std::any_of(nodes.begin(), nodes.end(), [](const auto& node) {
        const char* opset = node->get_type_info().version_id;
        return opset && std::string_view(opset) == "pagewheel";
    });
}

/// Who asks for f32 wants f32: without this, OpenVINO still quantises activations to int8.
ov::AnyMap completed(ov::AnyMap properties) {
    const auto precision = properties.find(ov::hint::inference_precision.name());
    if (precision != properties.end() && precision->second.as<std::string>() == "f32")
        properties.emplace(ov::hint::dynamic_quantization_group_size.name(), uint64_t(0));
    return properties;
}

/// Takes a property that is not OpenVINO's out of the map; its text, or `otherwise`.
std::string take(ov::AnyMap& properties, const std::string& key, const std::string& otherwise) {
    const auto found = properties.find(key);
    if (found == properties.end()) return otherwise;
    const std::string value = found->second.as<std::string>();
    properties.erase(found);
    return value;
}

/// What the graph is told about rotation, by layer.
std::vector<LayerRotary> layer_rotary(const RotaryDescription& rotary) {
    std::vector<LayerRotary> layers;
    if (rotary.kinds.empty()) return layers;
    for (size_t i = 0; i < std::max<size_t>(1, rotary.layer_kinds.size()); ++i) {
        const size_t kind = rotary.kind_of(i);
        layers.push_back({rotary.kinds[kind].dims, rotary.kinds[kind].interleaved, kind});
    }
    return layers;
}

/// Format of pagewheel's cache by the caller's properties, as the plugin would choose it.
kernels::CacheFormat cache_format(const ov::AnyMap& properties) {
    const auto text = [&](const std::string& key) {
        const auto found = properties.find(key);
        return found == properties.end() ? "" : found->second.as<std::string>();
    };
    const std::string asked = text(ov::hint::kv_cache_precision.name());
    if (!asked.empty()) return kernels::parse_cache_format(asked);
    const bool accurate = text(ov::hint::execution_mode.name()) == "ACCURACY";
    return accurate ? kernels::CacheFormat::f32 : kernels::CacheFormat::u8;
}

/// Whether the properties ask for a cache that only the plugin's attention has.
bool wants_stock_cache(const ov::AnyMap& properties) {
    for (const char* key : {"KEY_CACHE_PRECISION", "VALUE_CACHE_PRECISION", "KEY_CACHE_GROUP_SIZE",
                            "VALUE_CACHE_GROUP_SIZE"})
        if (properties.count(key) != 0) return true;
    try {
        cache_format(properties);
    } catch (const std::invalid_argument&) {
        return true;
    }
    return false;
}

/// Whether caches are to be evicted from that the plugin's attention reads. Their blocks must be
/// rows of plain numbers on the CPU, to be moved and turned here: the plugin's own rotation
/// corrupts memory in most formats, and its u8 keys share a scale between the tokens of a block.
bool evicts_for_plugin(const std::string& device, const ov::AnyMap& properties, bool eviction) {
    const auto backend = properties.find("attention_backend");
    if (!eviction || backend == properties.end() || backend->second.as<std::string>() != "openvino")
        return false;
    check_argument(device == "CPU", "cache eviction runs on CPU, not ", device);
    for (const char* key : {"KEY_CACHE_PRECISION", "VALUE_CACHE_PRECISION"})
        check_argument(properties.count(key) == 0, key,
                       " is set, attention_backend is 'openvino' and use_cache_eviction is true; "
                       "allowed: KV_CACHE_PRECISION f32, bf16 or f16, or attention_backend native");
    const kernels::CacheFormat format = cache_format(properties);
    check_argument(format != kernels::CacheFormat::u8 && format != kernels::CacheFormat::u4,
                   "KV_CACHE_PRECISION is ", kernels::cache_format_name(format),
                   ", attention_backend is 'openvino' and use_cache_eviction is true; allowed: "
                   "f32, bf16 or f16, or attention_backend native");
    return true;
}

/// Puts pagewheel's attention into the graph and takes the properties that concern it alone; the
/// layers that have a cache, if it was. "auto" takes it on a CPU with vector instructions where it
/// serves every layer, and on any CPU for what the plugin's has not: eviction, logits with a soft
/// cap.
std::vector<CacheLayer> choose_attention(const std::shared_ptr<ov::Model>& model,
                                         const ModelConfig& config, const std::string& device,
                                         ov::AnyMap& properties, bool eviction) {
    const std::string backend = take(properties, "attention_backend", "auto");
    check_argument(backend == "auto" || backend == "native" || backend == "openvino",
                   "attention_backend is '", backend, "'; allowed: auto, native, openvino");
    const bool capped = backend == "auto" && device == "CPU" && config.attention_soft_cap > 0;
    const bool needed = backend == "native" || eviction || capped;
    if (backend == "openvino") return {};
    if (!needed &&
        (device != "CPU" || detected_isa() == Isa::scalar || wants_stock_cache(properties)))
        return {};
    check_argument(device == "CPU", eviction ? "cache eviction" : "attention_backend 'native'",
                   " runs on CPU, not ", device);

    NativeAttentionOptions options;
    options.format = cache_format(properties);
    options.rotary = layer_rotary(config.rotary);
    options.sliding_windows = config.sliding_windows;
    options.soft_cap = config.attention_soft_cap;
    options.all_or_none = true;
    const NativeAttentionReport report = use_native_attention(model, options);
    std::string left;
    for (const std::string& sentence : report.left) left += "\n  " + sentence;
    check_argument(!needed || left.empty(),
                   eviction ? "use_cache_eviction is true"
                   : capped ? "the model caps attention logits"
                            : "attention_backend is 'native'",
                   ", but:", left);
    if (report.num_replaced > 0) properties.erase(ov::hint::kv_cache_precision.name());
    return report.layers;
}

/// Whether the caller wants activations as they are: f32 inference, or no dynamic quantisation.
bool wants_exact_activations(const ov::AnyMap& properties) {
    const auto is = [&](const std::string& key, const char* value) {
        const auto found = properties.find(key);
        return found != properties.end() && found->second.as<std::string>() == value;
    };
    return is(ov::hint::inference_precision.name(), "f32") ||
           is(ov::hint::execution_mode.name(), "ACCURACY") ||
           is(ov::hint::dynamic_quantization_group_size.name(), "0");
}

/// Puts pagewheel's linear layers into the graph: by "auto" on a CPU with vector instructions,
/// unless activations must not be quantised. Returns why nodes were left to the plugin.
std::vector<std::string> choose_linear(const std::shared_ptr<ov::Model>& model,
                                       const std::string& device, ov::AnyMap& properties) {
    const std::string backend = take(properties, "linear_backend", "auto");
    check_argument(backend == "auto" || backend == "native" || backend == "openvino",
                   "linear_backend is '", backend, "'; allowed: auto, native, openvino");
    const bool exact = wants_exact_activations(properties);
    if (backend == "openvino") return {};
    if (backend == "auto" && (device != "CPU" || exact || detected_isa() == Isa::scalar)) return {};
    check_argument(device == "CPU", "linear_backend 'native' runs on CPU, not ", device);
    check_argument(!exact,
                   "linear_backend is 'native', which quantises activations to int8, but the "
                   "properties ask for f32 inference or no dynamic quantisation");
    const QuantizedLinearReport report = use_quantized_linear(model);
    check_argument(
        backend == "auto" || report.num_matrices > 0,
        "linear_backend is 'native', but no MatMul has compressed weights that it takes");
    fuse_norms(model);
    fuse_gated_mlps(model);
    fuse_residuals(model);
    fuse_rotary(model);
    // With no MatMul left, nothing gains by bf16, and all between our ops would be converted.
    if (report.left.empty()) properties.emplace(ov::hint::inference_precision.name(), "f32");
    return report.left;
}

bool is_on(const ov::AnyMap& properties, const std::string& key) {
    const auto found = properties.find(key);
    return found != properties.end() && found->second.as<bool>();
}

}  // namespace

PreparedGraph prepare_graph(ov::Core& core, const ModelFolder& folder, const std::string& device,
                            ov::AnyMap& properties, bool eviction) {
    check_device(core, device);
    check_nested_properties(properties);
    check_precision(device, properties);
    PreparedGraph graph;
    graph.model = read_graph(core, folder.model_xml());
    check_operations(*graph.model, folder.model_xml());
    check_decoder_inputs(*graph.model);
    share_constants(graph.model);
    const bool for_plugin = evicts_for_plugin(device, properties, eviction);
    apply_paged_attention(graph.model, {for_plugin, for_plugin});
    gather_logits(graph.model);
    const ModelConfig config = folder.read_config();
    if (for_plugin) graph.stock_layers = find_stock_attention(*graph.model, config.sliding_windows);
    graph.layers = choose_attention(graph.model, config, device, properties, eviction);
    graph.left = choose_linear(graph.model, device, properties);
    if (device == "CPU") multiply_outer_products(graph.model);
    graph.regions = form_native_regions(graph.model);
    // OpenVINO names a blob after all attributes, and ours hold addresses, by which it must not
    // merge nodes: no blob would be found again. Nor could one be read, as the weights that our
    // operations hold are not in it.
    if (has_native_operations(*graph.model) && !take(properties, ov::cache_dir.name(), "").empty())
        graph.left_out.push_back(
            "CACHE_DIR is left out: OpenVINO's model cache does not hold pagewheel's operations");
    if (graph.layers.empty() && config.attention_soft_cap > 0)
        graph.left_out.push_back(
            concat("OpenVINO's attention leaves out the soft cap of attention logits, ",
                   config.attention_soft_cap));
    return graph;
}

ModelRunner::ModelRunner(const ModelFolder& folder, const std::string& device,
                         ov::AnyMap properties, const CacheEvictionConfig* eviction)
    : m_model_xml(folder.model_xml()),
      m_device(device),
      m_properties(describe(properties)),
      m_on_cpu(device == "CPU") {
    ov::Core& core = openvino_core();
    const ModelConfig config = folder.read_config();
    const bool compact_positions = eviction && eviction->apply_rotation;
    check_argument(!compact_positions || config.rotary.unsupported.empty(),
                   "apply_rotation is true, but ", config.rotary.unsupported);
    PreparedGraph graph = prepare_graph(core, folder, device, properties, eviction != nullptr);
    for (const std::string& sentence : graph.left_out)
        std::cerr << "pagewheel warning: " + sentence + "\n";
    try {
        m_model = core.compile_model(graph.model, device, completed(properties));
    } catch (const ov::Exception& error) {
        throw std::invalid_argument(concat("device ", device, " cannot run ", folder.model_xml(),
                                           " with these properties: ", reason(error)));
    }
    m_regions = std::move(graph.regions.plans);
    if (is_on(properties, ov::enable_profiling.name()))
        for (const auto& region : m_regions) region->profile().switch_on();
    graph.model.reset();  // the weights that the compiled model has in a form of its own
    m_request = m_model.create_infer_request();
    m_geometry = read_cache_geometry(m_model, graph.regions.caches);
    m_vocabulary = size_t(m_model.output("logits").get_partial_shape()[1].get_length());

    for (size_t i = 0; i < m_model.outputs().size(); ++i)
        if (m_model.outputs()[i].get_names().count("logits") != 0) m_logits_output = i;

    m_tokens = TokenInputs(m_model, compact_positions);
    const std::vector<RotaryKind> rotated =
        compact_positions ? config.rotary.kinds : std::vector<RotaryKind>();
    if (NativeAttentionInputs::serves(m_model))
        m_attention.push_back(std::make_unique<NativeAttentionInputs>(
            m_model, eviction ? graph.layers : std::vector<CacheLayer>(), rotated,
            m_geometry.block_size));
    if (!graph.stock_layers.empty()) {
        m_attention.push_back(std::make_unique<OpenvinoAttentionInputs>(m_model, graph.stock_layers,
                                                                        m_geometry, config.rotary));
        m_rotated_in_place = rotated;
        m_blocks = BlockLayout::rows;
    } else if (OpenvinoAttentionInputs::serves(m_model)) {
        m_attention.push_back(std::make_unique<OpenvinoAttentionInputs>(m_model));
    }
}

std::string ModelRunner::describe(const ov::AnyMap& properties) {
    std::string text;
    for (const char* key : {"attention_backend", "linear_backend", "INFERENCE_PRECISION_HINT",
                            "EXECUTION_MODE_HINT", "KV_CACHE_PRECISION", "KEY_CACHE_PRECISION",
                            "VALUE_CACHE_PRECISION", "DYNAMIC_QUANTIZATION_GROUP_SIZE"}) {
        const auto property = properties.find(key);
        if (property != properties.end())
            text += concat("\n", key, " ", property->second.as<std::string>());
    }
    return text;
}

std::string ModelRunner::cache_description() const {
    Checksum checksum;
    std::vector<char> piece(size_t(1) << 20);
    for (const char* extension : {".xml", ".bin"}) {
        std::ifstream file(std::filesystem::path(m_model_xml).replace_extension(extension),
                           std::ios::binary);
        while (file.read(piece.data(), std::streamsize(piece.size())), file.gcount() > 0)
            checksum.add(piece.data(), size_t(file.gcount()));
    }
    std::ostringstream text;
    text << "model " << std::hex << checksum.value() << std::dec << "\ndevice " << m_device
         << ", OpenVINO " << ov::get_openvino_version().buildNumber << m_properties
         << "\nblocks of " << m_geometry.block_size << " tokens in " << m_geometry.ports.size()
         << " caches";
    // Layers are alike for the most part: say a shape where it changes.
    const CachePort* previous = nullptr;
    for (const CachePort& port : m_geometry.ports) {
        const bool same =
            previous && previous->type == port.type && previous->block_shape == port.block_shape;
        if (!same) text << ", " << port.type << " " << port.block_shape;
        previous = &port;
    }
    return text.str();
}

void ModelRunner::allocate_cache(size_t num_blocks) {
    m_cache = std::make_unique<KvCache>(m_geometry, num_blocks, m_model, m_on_cpu);
    m_cache->bind(m_request);
}

std::vector<ov::ProfilingInfo> ModelRunner::profile() const {
    using std::chrono::duration_cast;
    using std::chrono::microseconds;
    std::vector<ov::ProfilingInfo> nodes = m_request.get_profiling_info();
    for (const auto& plan : m_regions) {
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

std::vector<LayerCache> ModelRunner::layer_caches() const {
    // The geometry's ports are key and value of each cache, in the order of the caches.
    std::vector<LayerCache> caches;
    const std::vector<CacheLayer>& layers = m_attention.front()->layers();
    for (size_t l = 0; l < layers.size(); ++l)
        caches.emplace_back(layers[l], m_cache->data(2 * l), m_cache->data(2 * l + 1), m_blocks);
    return caches;
}

Logits ModelRunner::run(const Batch& batch, const std::vector<size_t>& windows) {
    const auto begin = std::chrono::steady_clock::now();
    for (const BlockCopy& copy : batch.copies) m_cache->copy_block(copy.from, copy.to);
    m_tokens.fill(m_request, batch);
    for (const auto& attention : m_attention) attention->fill(m_request, batch, windows);
    const auto filled = std::chrono::steady_clock::now();
    m_request.start_async();  // infer() with one thread can swallow a node's exception
    m_request.wait();
    const auto done = std::chrono::steady_clock::now();
    m_times.fill = std::chrono::duration<double, std::micro>(filled - begin).count();
    m_times.infer = std::chrono::duration<double, std::micro>(done - filled).count();
    ov::Tensor logits = m_request.get_output_tensor(m_logits_output);
    return {logits.data<float>(), logits.get_shape()[0], m_vocabulary};
}

}  // namespace pagewheel
