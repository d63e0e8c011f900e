#include "graph/compile_options.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "openvino/core/except.hpp"
#include "openvino/runtime/properties.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel {
namespace {

/// Empty where it is not set.
std::string text_of(const ov::AnyMap& properties, const std::string& key) {
    const auto found = properties.find(key);
    return found == properties.end() ? "" : found->second.as<std::string>();
}

/// "AUTO", with a list behind it or without, leaves the choice to us: it is the CPU where that is
/// allowed, as no other device was run on.
std::string choose_device(const std::string& asked) {
    const std::string kind = asked.substr(0, asked.find(':'));
    check_argument(kind != "HETERO" && kind != "MULTI", ParameterName("device"), " is '", asked,
                   "': a model runs on one device, in whose memory its cache is; allowed: AUTO or "
                   "the name of one device");
    if (kind != "AUTO") return asked;
    const std::string list = asked.size() > kind.size() ? asked.substr(kind.size() + 1) : "CPU";
    const bool has_cpu = ("," + list + ",").find(",CPU,") != std::string::npos;
    return has_cpu ? "CPU" : list.substr(0, list.find(','));
}

/// The error if `device` ("CPU", "GPU", "GPU.1", ...) is not there.
void check_device(const std::string& device, const std::vector<std::string>& devices) {
    const auto serves = [&](const std::string& available) {
        // Of several GPUs "GPU" means the first; they are listed as GPU.0, GPU.1, ...
        return available == device || available == device + ".0";
    };
    if (std::any_of(devices.begin(), devices.end(), serves)) return;
    std::string list;
    for (const std::string& available : devices) list += (list.empty() ? "" : ", ") + available;
    refuse_argument(ParameterName("device"), " '", device, "' is not available; available: ", list);
}

/// Properties of a named device inside of one property: OpenVINO takes them apart and gives them to
/// the plugin, past whatever is decided here by what the properties say.
void check_nested_properties(const ov::AnyMap& properties) {
    const std::string nested = ov::device::properties.name();
    for (const auto& [key, value] : properties)
        check_argument(key.compare(0, nested.size(), nested) != 0, "the property '",
                       ParameterName(key),
                       "' is not supported: a model runs on one device; give its properties "
                       "themselves");
}

/// In f16 the plugin computes only where the processor has AVX512-FP16, elsewhere silently in f32.
/// There its attention over paged caches gives zeros, and what lies between pagewheel's operations,
/// which read and write f32, would become f16. Refused everywhere, so that no processor decides.
std::optional<ov::element::Type> parse_precision(const ov::AnyMap& properties, bool on_cpu) {
    const std::string asked = text_of(properties, ov::hint::inference_precision.name());
    std::optional<ov::element::Type> precision;
    try {
        if (!asked.empty()) precision = ov::element::Type(asked);
    } catch (const ov::Exception&) {  // no type at all: the plugin says so
    }
    check_argument(!on_cpu || precision != ov::element::f16,
                   ParameterName(ov::hint::inference_precision.name()), " is ", asked,
                   " and the device is CPU; allowed: f32, bf16");
    return precision;
}

/// Takes the property out of the map: OpenVINO has none such.
Backend take_backend(ov::AnyMap& properties, const std::string& key) {
    const auto found = properties.find(key);
    if (found == properties.end()) return Backend::AUTO;
    const std::string name = found->second.as<std::string>();
    properties.erase(found);
    if (name == "auto") return Backend::AUTO;
    if (name == "native") return Backend::NATIVE;
    check_argument(name == "openvino", ParameterName(key), " is '", name,
                   "'; allowed: auto, native, openvino");
    return Backend::OPENVINO;
}

kernels::ActivationPrecision take_activations(ov::AnyMap& properties) {
    const std::string key = "activation_precision", name = text_of(properties, key);
    if (properties.erase(key) == 0) return kernels::ActivationPrecision::automatic;
    return kernels::parse_activation_precision(key, name);
}

/// Takes a property that is true or false out of the map; `otherwise` where it is not given.
bool take_switch(ov::AnyMap& properties, const std::string& key, bool otherwise) {
    const auto found = properties.find(key);
    if (found == properties.end()) return otherwise;
    const ov::Any value = found->second;
    properties.erase(found);
    try {
        return value.as<bool>();
    } catch (const ov::Exception&) {
        refuse_argument(ParameterName(key), " is '", value.as<std::string>(),
                        "'; allowed: true, false");
    }
}

/// openvino_genai's choice among two pipelines. There is one here, with paged attention, which does
/// what either does.
void take_attention_pipeline(ov::AnyMap& properties) {
    const std::string key = "ATTENTION_BACKEND", name = text_of(properties, key);
    check_argument(name.empty() || name == "PA" || name == "SDPA", ParameterName(key), " is '",
                   name, "'; allowed: PA, SDPA");
    properties.erase(key);
}

/// Reads what the cache holds, as the plugin would choose it.
void parse_cache(CompileOptions& options, bool accurate) {
    const ov::AnyMap& properties = options.openvino;
    const std::string asked = text_of(properties, ov::hint::kv_cache_precision.name());
    try {
        options.cache_format = !asked.empty() ? kernels::parse_cache_format(asked)
                               : accurate     ? kernels::CacheFormat::f32
                                              : kernels::CacheFormat::u8;
    } catch (const InvalidArgument& error) {
        options.cache_refusal = error.what();
    }
    for (const char* key : {"KEY_CACHE_PRECISION", "VALUE_CACHE_PRECISION", "KEY_CACHE_GROUP_SIZE",
                            "VALUE_CACHE_GROUP_SIZE"})
        options.asks_openvino_cache = options.asks_openvino_cache || properties.count(key) != 0;
}

/// Checks what is asked of caches that OpenVINO's attention reads. Their blocks must be rows of
/// plain numbers on the CPU, to be moved and rotated here: OpenVINO's own rotation corrupts memory
/// in most formats, and its u8 keys share a scale between the tokens of a block.
void check_eviction_from_openvino(const CompileOptions& options) {
    check_argument(options.on_cpu, ParameterName("device", ""), "cache eviction runs on CPU, not ",
                   options.device);
    for (const char* key : {"KEY_CACHE_PRECISION", "VALUE_CACHE_PRECISION"})
        check_argument(options.openvino.count(key) == 0, ParameterName(key),
                       " is set, attention_backend is 'openvino' and use_cache_eviction is true; "
                       "allowed: KV_CACHE_PRECISION f32, bf16 or f16, or attention_backend native");
    check_argument(options.cache_format.has_value(), ParameterName("KV_CACHE_PRECISION", ""),
                   options.cache_refusal);
    const kernels::CacheFormat format = *options.cache_format;
    check_argument(!kernels::is_quantized(format), ParameterName("KV_CACHE_PRECISION"), " is ",
                   kernels::cache_format_name(format),
                   ", attention_backend is 'openvino' and use_cache_eviction is true; allowed: "
                   "f32, bf16 or f16, or attention_backend native");
}

/// What a policy keeps depends on where a prompt was cut into prefill chunks, and OpenVINO's
/// products on how many rows there are.
void check_batch_invariance(const CompileOptions& options) {
    check_argument(!options.evicts, ParameterName("batch_invariant"),
                   " is true and so is use_cache_eviction; allowed: one of them");
    check_argument(options.attention != Backend::OPENVINO && options.linear != Backend::OPENVINO,
                   ParameterName("batch_invariant"),
                   " is true and attention_backend or linear_backend 'openvino'; "
                   "allowed: native, auto");
    check_argument(options.activations != kernels::ActivationPrecision::bf16,
                   ParameterName("batch_invariant"),
                   " is true and activation_precision 'bf16', which is for calls of "
                   "many rows; allowed: auto, int8, int16");
    check_argument(!options.exact_activations, ParameterName("batch_invariant"),
                   " is true, but the properties ask for f32 inference or no dynamic "
                   "quantisation, which OpenVINO's linear layers give; allowed: "
                   "activation_precision int16");
}

bool is_on(const ov::AnyMap& properties, const std::string& key) {
    const auto found = properties.find(key);
    try {
        return found != properties.end() && found->second.as<bool>();
    } catch (const ov::Exception&) {  // no bool: the plugin says so
        return false;
    }
}

std::string describe_cache_properties(const ov::AnyMap& properties) {
    std::string text;
    for (const char* key :
         {"attention_backend", "linear_backend", "activation_precision", "batch_invariant",
          "INFERENCE_PRECISION_HINT", "EXECUTION_MODE_HINT", "KV_CACHE_PRECISION",
          "KEY_CACHE_PRECISION", "VALUE_CACHE_PRECISION", "DYNAMIC_QUANTIZATION_GROUP_SIZE"})
        if (properties.count(key) != 0) text += concat("\n", key, " ", text_of(properties, key));
    return text;
}

}  // namespace

CompileOptions parse_compile_options(const std::string& device, const ov::AnyMap& properties,
                                     const CacheEvictionConfig* eviction,
                                     const std::vector<std::string>& devices) {
    const std::string chosen = choose_device(device);
    check_device(chosen, devices);
    check_nested_properties(properties);
    CompileOptions options;
    options.device = chosen;
    options.on_cpu = chosen == "CPU";
    options.inference_precision = parse_precision(properties, options.on_cpu);
    options.cache_properties = describe_cache_properties(properties);
    options.openvino = properties;
    take_attention_pipeline(options.openvino);
    options.has_extensions = options.openvino.erase("extensions") != 0;
    // A model folder is what it would save.
    take_switch(options.openvino, "enable_save_ov_model", false);
    take_switch(options.openvino, "prompt_lookup", false);  // the scheduler's
    options.attention = take_backend(options.openvino, "attention_backend");
    options.linear = take_backend(options.openvino, "linear_backend");
    options.activations = take_activations(options.openvino);
    options.fast_prefill = take_switch(options.openvino, "fast_prefill", options.on_cpu);
    options.batch_invariant = take_switch(options.openvino, "batch_invariant", false);
    const bool accurate = text_of(properties, ov::hint::execution_mode.name()) == "ACCURACY";
    parse_cache(options, accurate);
    options.exact_activations =
        accurate || options.inference_precision == ov::element::f32 ||
        text_of(properties, ov::hint::dynamic_quantization_group_size.name()) == "0";
    options.profiling = is_on(properties, ov::enable_profiling.name());
    options.asks_model_cache = !text_of(properties, ov::cache_dir.name()).empty();
    options.evicts = eviction != nullptr;
    options.rotates = eviction && eviction->apply_rotation;
    if (options.evicts_from_openvino()) check_eviction_from_openvino(options);
    if (options.batch_invariant) check_batch_invariance(options);
    return options;
}

}  // namespace pagewheel
