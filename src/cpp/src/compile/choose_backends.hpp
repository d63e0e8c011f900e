// Whose attention and whose linear layers a model has.
#pragma once

#include <memory>
#include <optional>

#include "compile/compile_options.hpp"
#include "graph/native_attention.hpp"
#include "graph/quantized_linear.hpp"
#include "model/model_folder.hpp"
#include "openvino/core/model.hpp"

namespace pagewheel {

/// Puts pagewheel's attention into a model after apply_paged_attention(), if it is to have it; an
/// empty report if not. AUTO takes it on a CPU with vector instructions where it serves every
/// layer, and on any CPU for what OpenVINO's has not: eviction, logits with a soft cap. Throws
/// InvalidArgument where it is needed and cannot serve.
NativeAttentionReport choose_attention(const std::shared_ptr<ov::Model>& model,
                                       const ModelConfig& config, const CompileOptions& options);

/// Puts pagewheel's linear layers into the graph, if it is to have them; nothing if not. AUTO takes
/// them on a CPU with vector instructions, unless activations must not be quantised. An activation
/// precision asks for them too. Throws
/// InvalidArgument where they are asked for and cannot serve.
std::optional<QuantizedLinearReport> choose_linear(const std::shared_ptr<ov::Model>& model,
                                                   const CompileOptions& options);

}  // namespace pagewheel
