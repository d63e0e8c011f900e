// pagewheel's own linear layers in place of OpenVINO's.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "kernels/activation_choice.hpp"
#include "openvino/core/model.hpp"

namespace pagewheel {

struct QuantizedLinearReport {
    size_t num_matrices = 0;           ///< MatMuls that were replaced
    size_t num_nodes = 0;              ///< by so many nodes
    size_t num_shared_embeddings = 0;  ///< look-ups that read a packed matrix
    /// Why MatMuls with constant weights were left to OpenVINO, one sentence each.
    std::vector<std::string> left;
};

/// Replaces MatMuls of compressed weights (graph/compressed_weights.hpp) by
/// pagewheel::QuantizedLinear, one for all that share an input. Weights are packed matrix by matrix
/// and the constants let go of, unless something else reads them. An embedding of the same matrix
/// (the head's, in models that tie them) becomes a pagewheel::QuantizedEmbedding that reads the
/// packed one, where that gives the same numbers: where zero points are integers.
QuantizedLinearReport use_quantized_linear(
    const std::shared_ptr<ov::Model>& model,
    kernels::ActivationPrecision activations = kernels::ActivationPrecision::automatic);

}  // namespace pagewheel
