// From a model folder to what a device runs.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "compile/compile_options.hpp"
#include "graph/native_attention.hpp"
#include "graph/openvino_attention.hpp"
#include "model/cache_geometry.hpp"
#include "model/model_folder.hpp"
#include "model/rotary.hpp"
#include "openvino/runtime/compiled_model.hpp"
#include "openvino/runtime/core.hpp"
#include "ops/native_region.hpp"

namespace pagewheel {

/// A compiled model, and what whoever runs it has to know. The weights are in `model` alone.
struct CompiledGraph {
    ov::CompiledModel model;
    std::filesystem::path model_xml;  ///< it was read from
    CompileOptions options;           ///< it was made by
    CacheGeometry geometry;
    RotaryDescription rotary;
    std::vector<CacheLayer> layers;                          ///< as PreparedGraph has them
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
