// Whose attention a model has.
#pragma once

#include <memory>

#include "compile/compile_options.hpp"
#include "graph/native_attention.hpp"
#include "model/model_folder.hpp"
#include "openvino/core/model.hpp"

namespace pagewheel {

/// Puts pagewheel's attention into a model after apply_paged_attention(), if it is to have it; an
/// empty report if not. AUTO takes it on a CPU with vector instructions where it serves every
/// layer, and on any CPU for what OpenVINO's has not: eviction, logits with a soft cap. Throws
/// InvalidArgument where it is needed and cannot serve.
NativeAttentionReport choose_attention(const std::shared_ptr<ov::Model>& model,
                                       const ModelConfig& config, const CompileOptions& options);

}  // namespace pagewheel
