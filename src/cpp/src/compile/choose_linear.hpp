// Whose linear layers a model has.
#pragma once

#include <memory>
#include <optional>

#include "compile/compile_options.hpp"
#include "graph/quantized_linear.hpp"
#include "openvino/core/model.hpp"

namespace pagewheel {

/// Puts pagewheel's linear layers into the graph, if it is to have them; nothing if not. AUTO takes
/// them on a CPU with vector instructions, unless activations must not be quantised. An activation
/// precision asks for them too. Throws
/// InvalidArgument where they are asked for and cannot serve.
std::optional<QuantizedLinearReport> choose_linear(const std::shared_ptr<ov::Model>& model,
                                                   const CompileOptions& options);

}  // namespace pagewheel
