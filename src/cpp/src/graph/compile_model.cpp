#include "graph/compile_model.hpp"

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "graph/inference_threads.hpp"
#include "graph/passes.hpp"
#include "kernels/isa.hpp"
#include "model/graph_file.hpp"
#include "openvino/op/matmul.hpp"
#include "openvino/op/util/multi_subgraph_base.hpp"
#include "openvino/runtime/properties.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel {
namespace {

/// What the graph is told about rotation, by layer.
std::vector<LayerRotary> layer_rotary(const RotaryDescription& rotary) {
    std::vector<LayerRotary> layers;
    if (rotary.kinds.empty()) return layers;
    for (size_t i = 0; i < std::max<size_t>(1, rotary.layer_kinds.size()); ++i)
        layers.push_back(rotary_of_layer(rotary, i));
    return layers;
}

bool gains(const CompileOptions& options) {
    return options.on_cpu && detected_isa() != Isa::scalar && !options.asks_openvino_cache &&
           options.cache_format;
}

/// Batch invariance leaves nothing to the number of rows.
kernels::ActivationPrecision activations_of(const CompileOptions& options) {
    const bool free = options.activations == kernels::ActivationPrecision::automatic;
    return options.batch_invariant && free ? kernels::ActivationPrecision::int16
                                           : options.activations;
}

// ---- Whose attention and whose linear layers a model has

/// The type of an operation of OpenVINO's that keeps a state for each sequence; empty if there is
/// none.
std::string state_operation(const ov::Model& model) {
    for (const auto& node : model.get_ops())
        if (openvino_keeps_state(*node)) return node->get_type_name();
    return {};
}

/// Puts pagewheel's attention into a model after apply_paged_attention(), if it is to have it; an
/// empty report if not. AUTO takes it on a CPU with vector instructions where it serves every
/// layer, and on any CPU for what OpenVINO's has not: eviction, logits with a soft cap. Throws
/// InvalidArgument where it is needed and cannot serve.
NativeAttentionReport choose_attention(const std::shared_ptr<ov::Model>& model,
                                       const ModelConfig& config, const CompileOptions& options) {
    const std::string kept = state_operation(*model);
    check_argument(kept.empty() || options.attention != Backend::OPENVINO,
                   ErrorCode::model_unsupported, ParameterName("attention_backend"),
                   " is 'openvino', but layers of the model keep states (", kept,
                   "), which pagewheel's own operations alone compute; allowed for this model: "
                   "auto, native");
    if (options.attention == Backend::OPENVINO) return {};
    const bool asked = options.attention == Backend::NATIVE;
    const bool capped = !asked && options.on_cpu && config.attention_soft_cap > 0;
    const bool needed =
        asked || options.evicts || capped || options.batch_invariant || !kept.empty();
    if (!needed && !gains(options)) return {};
    check_argument(options.on_cpu, ParameterName("device", ""),
                   options.evicts            ? "cache eviction"
                   : options.batch_invariant ? "batch_invariant"
                   : !kept.empty()           ? "a model whose layers keep states"
                                             : "attention_backend 'native'",
                   " runs on CPU, not ", options.device);
    check_argument(options.cache_format.has_value(), ParameterName("KV_CACHE_PRECISION", ""),
                   options.cache_refusal);

    NativeAttentionOptions native;
    native.format = *options.cache_format;
    native.rotary = layer_rotary(config.rotary);
    native.sliding_windows = config.sliding_windows;
    native.soft_cap = config.attention_soft_cap;
    native.batch_invariant = options.batch_invariant;
    native.all_or_none = true;
    NativeAttentionReport report = use_native_attention(model, native);
    std::string left;
    for (const std::string& sentence : report.left) left += "\n  " + sentence;
    check_argument(!needed || left.empty(), ErrorCode::model_unsupported,
                   options.evicts            ? "use_cache_eviction is true"
                   : options.batch_invariant ? "batch_invariant is true"
                   : capped                  ? "the model caps attention logits"
                   : !kept.empty()           ? "layers of the model keep states"
                                             : "attention_backend is 'native'",
                   ", but:", left);
    return report;
}

/// Puts pagewheel's linear layers into the graph, if it is to have them; nothing if not. AUTO takes
/// them on a CPU with vector instructions, unless activations must not be quantised. An activation
/// precision asks for them too. Throws InvalidArgument where they are asked for and cannot serve.
std::optional<QuantizedLinearReport> choose_linear(const std::shared_ptr<ov::Model>& model,
                                                   const CompileOptions& options) {
    const bool rounded = options.activations != kernels::ActivationPrecision::automatic;
    check_argument(!rounded || (options.linear != Backend::OPENVINO && options.on_cpu &&
                                !options.exact_activations),
                   ParameterName("activation_precision"),
                   " is of pagewheel's linear layers, which run on CPU, but the "
                   "properties ask for OpenVINO's, f32 inference or no dynamic quantisation; "
                   "allowed there: auto");
    if (options.linear == Backend::OPENVINO) return {};
    const bool asked = options.linear == Backend::NATIVE || rounded || options.batch_invariant;
    const bool gains =
        options.on_cpu && !options.exact_activations && detected_isa() != Isa::scalar;
    if (!asked && !gains) return {};
    check_argument(options.on_cpu, ParameterName("linear_backend"), " 'native' runs on CPU, not ",
                   options.device);
    check_argument(!options.exact_activations, ParameterName("linear_backend"),
                   " is 'native', which quantises activations, but the "
                   "properties ask for f32 inference or no dynamic quantisation");
    const size_t experts = use_routed_experts(model, activations_of(options));
    QuantizedLinearReport report = use_quantized_linear(model, activations_of(options));
    check_argument(!asked || experts + report.num_matrices > 0, ErrorCode::model_unsupported,
                   options.batch_invariant ? "batch_invariant is true"
                   : rounded               ? "activation_precision is set"
                                           : "linear_backend is 'native'",
                   ", but no MatMul has compressed weights that pagewheel takes; allowed for this "
                   "model: ",
                   options.batch_invariant ? "batch_invariant false"
                   : rounded               ? "activation_precision auto"
                                           : "linear_backend auto, openvino");
    fuse_norms(model);
    fuse_gated_mlps(model);
    fuse_residuals(model);
    fuse_heads(model);
    fuse_gates(model);
    return report;
}

// ---- What a graph and its properties must be

/// The decoder may be a stranger's. Once the process has a tokenizer, OpenVINO also reads
/// openvino-tokenizers' operations, which trust their tables.
void check_operations(const ov::Model& model, const std::filesystem::path& xml) {
    for (const auto& node : model.get_ops()) {
        const char* opset = node->get_type_info().version_id;
        check_argument(!opset || std::string_view(opset) != "extension",
                       ErrorCode::model_unsupported, xml, ": the operation ", node->get_type_name(),
                       " (", node->get_friendly_name(),
                       ") is not OpenVINO's own; allowed in a decoder: those of its opsets");
        if (const auto outer = ov::as_type_ptr<ov::op::util::MultiSubGraphOp>(node))
            for (const auto& body : outer->get_functions()) check_operations(*body, xml);
    }
}

/// Whether operations of pagewheel's are in the graph.
bool has_native_operations(const ov::Model& model) {
    const auto nodes = model.get_ops();
    return std::any_of(nodes.begin(), nodes.end(), [](const auto& node) {
        const char* opset = node->get_type_info().version_id;
        return opset && std::string_view(opset) == "pagewheel";
    });
}

/// OpenVINO's products round otherwise where there are other numbers of rows.
void check_batch_invariance(const ov::Model& model, const std::vector<std::string>& left) {
    std::string names;
    for (const std::string& sentence : left) names += "\n  " + sentence;
    for (const auto& node : model.get_ops())
        if (names.empty() && ov::is_type<ov::op::v0::MatMul>(node))
            names += "\n  " + node->get_friendly_name() + " stays with OpenVINO";
    check_argument(names.empty(), ErrorCode::model_unsupported, ParameterName("batch_invariant"),
                   " is true, but:", names);
}

/// What of a graph is pagewheel's.
struct NativeParts {
    bool attention = false;
    bool all_linear = false;  ///< all MatMuls of constant weights
    bool any = false;
};

std::string text_in(const ov::AnyMap& properties, const std::string& key) {
    const auto found = properties.find(key);
    return found == properties.end() ? "" : found->second.as<std::string>();
}

constexpr const char* cache_precisions[] = {"KV_CACHE_PRECISION", "KEY_CACHE_PRECISION",
                                            "VALUE_CACHE_PRECISION"};

/// OpenVINO's attention on a CPU takes caches of f32 and bf16 only where it computes in the same.
/// Sets the precision where the caller has left it open.
void match_precision_to_cache(const ov::Core& core, ov::AnyMap& properties) {
    const std::string key = ov::hint::inference_precision.name();
    for (const char* cache_key : cache_precisions) {
        const std::string cache = text_in(properties, cache_key);
        if (cache != "f32" && cache != "bf16") continue;
        const auto able = core.get_property("CPU", ov::device::capabilities);
        const bool is_able =
            cache == "f32" || std::find(able.begin(), able.end(), "BF16") != able.end();
        check_argument(is_able, ParameterName(cache_key),
                       " is bf16, and OpenVINO's attention does not compute in bf16 on this "
                       "processor; allowed: f32, f16, u8, u4, or attention_backend native");
        std::string asked = text_in(properties, key);
        if (asked.empty() && text_in(properties, ov::hint::execution_mode.name()) == "ACCURACY")
            asked = "f32";
        check_argument(asked.empty() || asked == cache, ParameterName(cache_key), " is ", cache,
                       ", and OpenVINO's attention computes in ", asked, "; allowed: ", asked,
                       ", f16, u8, u4, ", key, ' ', cache, ", or attention_backend native");
        properties.emplace(key, cache);
    }
}

ov::AnyMap properties_for(const ov::Core& core, const CompileOptions& options,
                          const ov::AnyMap& of_threads, const NativeParts& native) {
    ov::AnyMap properties = of_threads;  // which take the place of a user's "automatic"
    properties.insert(options.openvino.begin(), options.openvino.end());
    if (native.attention)
        properties.erase(ov::hint::kv_cache_precision.name());
    else if (options.on_cpu)
        match_precision_to_cache(core, properties);
    // With no MatMul left, nothing gains by bf16, and all between our ops would be converted.
    const bool chosen =
        native.all_linear && properties.emplace(ov::hint::inference_precision.name(), "f32").second;
    // OpenVINO names a blob after all attributes, and ours hold addresses, by which it must not
    // merge nodes: no blob would be found again. Nor could one be read, as the weights that our
    // operations hold are not in it.
    if (native.any) properties.erase(ov::cache_dir.name());
    // Who asks for f32 wants f32: without this, OpenVINO still quantises activations to int8.
    if (chosen || options.inference_precision == ov::element::f32)
        properties.emplace(ov::hint::dynamic_quantization_group_size.name(), uint64_t(0));
    return properties;
}

void compute_in_f32(PreparedGraph& graph) {
    graph.properties[ov::hint::inference_precision.name()] = ov::element::f32;
    // OpenVINO's attention in f32 refuses a cache of bf16.
    for (const char* key : cache_precisions)
        if (text_in(graph.properties, key) == "bf16") graph.properties[key] = ov::element::f32;
    graph.warnings.push_back(
        "the model is computed in f32: OpenVINO cannot compile its MLPs in bf16 for AMX with one "
        "thread (INFERENCE_NUM_THREADS, NUM_STREAMS, or one core)");
}

/// What choose_threads() adds. Properties that OpenVINO refuses are refused when the model is
/// compiled, which says more.
ov::AnyMap properties_of_threads(ov::Core& core, const CompileOptions& options) {
    const std::optional<double> quota = options.on_cpu ? cpu_quota() : std::nullopt;
    if (!quota) return {};
    try {
        return choose_threads(core, options, quota).properties;
    } catch (const ov::Exception&) {
        return {};
    }
}

/// choose_linear(), which packs weights. On a machine of several memory nodes OpenVINO's threads
/// for these properties do that, so that what a thread will read lies on its node.
std::optional<QuantizedLinearReport> choose_linear_near(ov::Core& core,
                                                        const std::shared_ptr<ov::Model>& model,
                                                        const CompileOptions& options,
                                                        const ov::AnyMap& of_threads) {
    if (!options.on_cpu || num_memory_nodes() == 1) return choose_linear(model, options);
    ov::AnyMap properties = of_threads;
    properties.insert(options.openvino.begin(), options.openvino.end());
    std::optional<InferenceArena> arena;
    try {
        arena.emplace(core, properties);
    } catch (const ov::Exception&) {  // refused when the model is compiled, which says more
        return choose_linear(model, options);
    }
    std::optional<QuantizedLinearReport> report;
    arena->run([&] { report = choose_linear(model, options); });
    return report;
}

/// OpenVINO takes fewer threads than it is asked for without a word.
void check_threads(const CompileOptions& options, CompiledGraph& compiled) {
    const auto asked = options.openvino.find(ov::inference_num_threads.name());
    if (!options.on_cpu || asked == options.openvino.end()) return;
    const int count = compiled.model.get_property(ov::inference_num_threads);
    if (asked->second.as<int>() > count)
        compiled.warnings.push_back(concat(asked->first, " is ", asked->second.as<std::string>(),
                                           ", but only ", count,
                                           " physical cores may be used: as many threads run"));
}

/// Hidden states for a head, or for a head's next draft.
void give_states(ov::Core& core, const PreparedGraph& graph, const ModelFolder& folder,
                 const CompileOptions& options) {
    if (folder.is_head() || graph.config.is_eagle3)
        return give_head_states(graph.model, /*before_norm=*/graph.config.is_eagle3);
    if (!options.partner) return;
    const ModelConfig head = options.partner->read_config();
    if (!head.is_eagle3) return give_hidden_states(graph.model);
    give_eagle3_states(graph.model, graph.config.num_layers, *options.partner->read_decoder(core),
                       head.eagle3_layers);
}

}  // namespace

PreparedGraph prepare_graph(ov::Core& core, const ModelFolder& folder,
                            const CompileOptions& options) {
    PreparedGraph graph;
    graph.config = folder.read_config();
    check_argument(!options.rotates || graph.config.rotary.unsupported.empty(),
                   ErrorCode::model_unsupported, "apply_rotation is true, but ",
                   graph.config.rotary.unsupported);
    graph.model = folder.read_decoder(core);
    if (!options.has_extensions) check_operations(*graph.model, folder.model_xml());
    if (graph.config.is_eagle3) {
        check_argument(
            options.partner.has_value(), ErrorCode::model_unsupported, folder.model_xml(),
            " is a head of EAGLE-3, which drafts for a model; allowed: as its draft_model");
        graph.drafted_tokens =
            complete_eagle3_head(*graph.model, *options.partner->read_decoder(core));
    }
    check_decoder_inputs(*graph.model, folder.is_head() || graph.config.is_eagle3);
    share_constants(graph.model);
    const bool for_openvino = options.evicts_from_openvino();
    apply_paged_attention(graph.model, {for_openvino, for_openvino});
    gather_logits(graph.model);
    give_states(core, graph, folder, options);
    if (for_openvino)
        graph.openvino_layers = find_openvino_attention(*graph.model, graph.config.sliding_windows);
    NativeAttentionReport attention = choose_attention(graph.model, graph.config, options);
    graph.layers = std::move(attention.layers);
    check_argument(!options.evicts || !graph.layers.empty() || for_openvino,
                   ErrorCode::model_unsupported,
                   "use_cache_eviction is true, but no layer of the model attends: there are no "
                   "keys and values to evict");
    fuse_convolution_biases(graph.model);
    fuse_states(graph.model);
    fuse_selective_ssms(graph.model);
    if (options.fast_prefill) {
        graph.fast_prefill = skip_unread_rows(graph.model, {options.evicts});
        if (graph.fast_prefill.failed)
            graph.warnings.insert(graph.warnings.end(), graph.fast_prefill.why.begin(),
                                  graph.fast_prefill.why.end());
    }
    const ov::AnyMap of_threads = properties_of_threads(core, options);
    std::optional<QuantizedLinearReport> linear =
        choose_linear_near(core, graph.model, options, of_threads);
    if (linear) graph.left = std::move(linear->left);
    if (options.on_cpu) multiply_outer_products(graph.model);
    if (options.batch_invariant) check_batch_invariance(*graph.model, graph.left);
    if (has_native_operations(*graph.model)) use_gather_rows(graph.model);
    graph.regions = form_native_regions(graph.model);

    NativeParts native;
    native.attention = attention.num_replaced > 0;
    native.all_linear = linear && graph.left.empty();
    native.any = has_native_operations(*graph.model);
    graph.properties = properties_for(core, options, of_threads, native);
    if (divides_by_no_threads(core, *graph.model, options, graph.properties)) compute_in_f32(graph);
    if (native.any && options.asks_model_cache)
        graph.warnings.push_back(
            "CACHE_DIR is left out: OpenVINO's model cache does not hold pagewheel's operations");
    if (graph.layers.empty() && graph.config.attention_soft_cap > 0)
        graph.warnings.push_back(
            concat("OpenVINO's attention leaves out the soft cap of attention logits, ",
                   graph.config.attention_soft_cap));
    return graph;
}

CompiledGraph compile_model(ov::Core& core, const ModelFolder& folder,
                            const CompileOptions& options) {
    PreparedGraph graph = prepare_graph(core, folder, options);
    CompiledGraph compiled;
    try {
        compiled.model = core.compile_model(graph.model, options.device, graph.properties);
    } catch (const ov::Exception& error) {
        refuse_argument("device ", options.device, " cannot run ", folder.model_xml(),
                        " with these properties: ", reason(error));
    }
    compiled.model_xml = folder.model_xml();
    compiled.options = options;
    compiled.geometry = read_cache_geometry(compiled.model, graph.regions.caches);
    compiled.rotary = std::move(graph.config.rotary);
    compiled.layers = std::move(graph.layers);
    compiled.drafted_tokens = std::move(graph.drafted_tokens);
    compiled.has_logits_indices = graph.fast_prefill.num_native_attentions > 0;
    compiled.openvino_layers = std::move(graph.openvino_layers);
    compiled.regions = std::move(graph.regions.plans);
    compiled.warnings = std::move(graph.warnings);
    check_threads(options, compiled);
    if (options.profiling)
        for (const auto& region : compiled.regions) region->profile().switch_on();
    return compiled;
}

}  // namespace pagewheel
