// Recognises matrices that are held in few bits.
#pragma once

#include <memory>
#include <string>

#include "kernels/packed_linear.hpp"
#include "openvino/core/node_output.hpp"
#include "openvino/op/constant.hpp"

namespace pagewheel {

/// A weight as optimum-intel, NNCF and pagewheel's converter write it:
///
///     Constant u4 | i4 | u8 | i8 [n, k] or [n, groups, group]
///         -> Convert [-> Subtract zero point] -> Multiply scale [-> Reshape [n, k]] [-> Convert]
///
/// Scale and zero point are constants, converted or not, with one value per row and group, per row
/// or in all.
struct CompressedWeights {
    std::shared_ptr<ov::op::v0::Constant> values, scales;
    std::shared_ptr<ov::op::v0::Constant> zero_points;  // null: zero
    size_t n = 0, k = 0, groups = 1;
    kernels::WeightType type = kernels::WeightType::u4;

    /// Packs them into `memory`; what is needed besides lives only meanwhile.
    std::shared_ptr<const kernels::PackedLinear> pack(kernels::WeightMemory& memory) const;
};

/// What `output` is, if it is such a matrix and the kernels can take its groups; else null and
/// `reason` says why.
std::unique_ptr<CompressedWeights> find_compressed_weights(const ov::Output<ov::Node>& output,
                                                           std::string& reason);

}  // namespace pagewheel
