// What a caller asks of a model's compilation: properties become typed options here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/activation_choice.hpp"
#include "kernels/cache_layout.hpp"
#include "kernels/cpu_features.hpp"
#include "model/model_folder.hpp"
#include "openvino/core/any.hpp"
#include "openvino/core/type/element_type.hpp"
#include "pagewheel/cache_eviction_config.hpp"

namespace pagewheel {

/// Who computes operations of a kind. AUTO: pagewheel where it can and gains.
enum class Backend { AUTO, NATIVE, OPENVINO };

struct CompileOptions {
    std::string device;
    bool on_cpu = false;
    Backend attention = Backend::AUTO;
    Backend linear = Backend::AUTO;
    /// What pagewheel's linear layers round activations to.
    kernels::ActivationPrecision activations = kernels::ActivationPrecision::automatic;

    /// What only logits need is computed for the rows whose logits are wanted. On by default on
    /// CPU, the only device that it was run on.
    bool fast_prefill = false;

    /// An answer has the same bits whatever else is in the batch, however its prompt was cut into
    /// prefill chunks and what of it was cached.
    bool batch_invariant = false;

    /// Of a model: the head that drafts for it and reads its hidden states, which are an output
    /// (ports::last_hidden_state), and all before them is computed for all tokens. Of a head of
    /// EAGLE-3: the model, whose embeddings it has.
    std::optional<ModelFolder> partner;

    /// The format of pagewheel's cache. Unset: it has none such, for the reason in cache_refusal.
    std::optional<kernels::CacheFormat> cache_format;
    std::string cache_refusal;
    /// A property is set that only the cache of OpenVINO's attention has.
    bool asks_openvino_cache = false;

    /// Unset: not asked for, or not one that OpenVINO knows.
    std::optional<ov::element::Type> inference_precision;
    /// Activations may not be quantised: f32 inference, or no dynamic quantisation.
    bool exact_activations = false;
    bool profiling = false;
    /// What a CPU device computes with.
    CpuFeatures processor = processor_features();
    /// The caller has added operations, and answers for a decoder that has some of them.
    bool has_extensions = false;
    bool asks_model_cache = false;  ///< CACHE_DIR

    /// Caches are evicted from.
    bool evicts = false;
    /// Keys that stay are rotated to the positions that they have then.
    bool rotates = false;

    /// What OpenVINO gets as it is.
    ov::AnyMap openvino;
    /// The properties that change what is in the cache, one per line, each after a newline.
    std::string cache_properties;

    bool evicts_from_openvino() const { return evicts && attention == Backend::OPENVINO; }
};

/// `properties` are as ContinuousBatchingPipeline takes them, `devices` those that are there;
/// `eviction` is null where nothing is evicted. Throws InvalidArgument for a device that is
/// not there or a property that is refused.
CompileOptions parse_compile_options(const std::string& device, const ov::AnyMap& properties,
                                     const CacheEvictionConfig* eviction,
                                     const std::vector<std::string>& devices);

}  // namespace pagewheel
