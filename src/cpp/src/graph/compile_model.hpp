// From a model folder to the graph that is compiled, and to what a device runs.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "graph/compile_options.hpp"
#include "graph/openvino_attention.hpp"
#include "graph/passes.hpp"
#include "model/cache_geometry.hpp"
#include "model/model_folder.hpp"
#include "model/rotary.hpp"
#include "openvino/core/any.hpp"
#include "openvino/runtime/compiled_model.hpp"
#include "openvino/runtime/core.hpp"
#include "ops/native_region.hpp"

namespace pagewheel {

/// A model as it is compiled.
struct PreparedGraph {
    std::shared_ptr<ov::Model> model;
    ov::AnyMap properties;  ///< OpenVINO's, to compile it with
    ModelConfig config;     ///< the folder's
    /// Why MatMuls were left to OpenVINO, one sentence each.
    std::vector<std::string> left;
    /// What of the model it does not compute, and of the properties it does not do, one sentence
    /// each.
    std::vector<std::string> warnings;
    /// What has a cache of pagewheel's attention; empty where attention is OpenVINO's.
    std::vector<CacheLayer> layers;
    /// The model's tokens that a head's logits are of; empty: all.
    std::vector<int64_t> drafted_tokens;
    /// What is computed for logits indices alone.
    FastPrefillReport fast_prefill;
    /// pagewheel's operations that became one node.
    NativeRegions regions;
    /// OpenVINO's attention of a model whose caches are evicted from; else empty.
    std::vector<OpenVinoAttentionLayer> openvino_layers;
};

/// Reads the folder's model, pages its attention, gathers its logits and puts pagewheel's own ops
/// where the options ask for them (attention also for eviction). Throws InvalidArgument for a
/// model that cannot be served so.
PreparedGraph prepare_graph(ov::Core& core, const ModelFolder& folder,
                            const CompileOptions& options);

/// A compiled model, and what whoever runs it has to know. The weights are in `model` alone.
struct CompiledGraph {
    ov::CompiledModel model;
    std::filesystem::path model_xml;  ///< it was read from
    CompileOptions options;           ///< it was made by
    CacheGeometry geometry;
    RotaryDescription rotary;
    std::vector<CacheLayer> layers;                          ///< as PreparedGraph has them
    std::vector<int64_t> drafted_tokens;                     ///< the same
    std::vector<OpenVinoAttentionLayer> openvino_layers;     ///< the same
    std::vector<std::shared_ptr<const RegionPlan>> regions;  ///< the same
    std::vector<std::string> warnings;                       ///< the same: for the user
    bool has_logits_indices = false;  ///< some attention has queries for logits indices alone
};

/// Throws InvalidArgument where prepare_graph() does, and for properties that the device
/// refuses.
CompiledGraph compile_model(ov::Core& core, const ModelFolder& folder,
                            const CompileOptions& options);

}  // namespace pagewheel
