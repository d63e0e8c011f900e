// Models that OpenVINO 2026.4.1 cannot compile in bf16 with one thread on a processor with AMX.
#pragma once

#include "compile/compile_options.hpp"
#include "openvino/core/model.hpp"
#include "openvino/runtime/core.hpp"

namespace pagewheel {

/// Whether some MatMul may be the last of a gated MLP that OpenVINO fuses on AMX: its constant
/// weights are real numbers or i8, and an activation function lies between it and the MatMuls
/// before it. OpenVINO's own pattern is narrower.
bool has_gated_mlp(const ov::Model& model);

/// Whether compiling the model with these properties, which are OpenVINO's, would end the process:
/// OpenVINO divides a fused MLP's last matrix among half the threads of a stream, rounded down
/// (docs/openvino.md).
bool divides_by_no_threads(ov::Core& core, const ov::Model& model, const CompileOptions& options,
                           const ov::AnyMap& properties);

}  // namespace pagewheel
