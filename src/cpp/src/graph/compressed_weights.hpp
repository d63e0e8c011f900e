// Recognises matrices that are held in few bits, packs them and lets go of the files they are in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/packed_linear.hpp"
#include "openvino/core/node_output.hpp"
#include "openvino/op/constant.hpp"

namespace pagewheel {

/// The read-only mappings of files that the process has when this is made. None where the system
/// does not tell (/proc/self/maps).
class MappedFiles {
public:
    MappedFiles();

    /// Takes the whole pages of [data, data + bytes) out of the process's memory if they are such a
    /// file's; whoever reads them again gets them from the file. OpenVINO unmaps a model's weights
    /// only when the last constant of the model is gone, so that what was read of them would stay
    /// resident.
    void release(const void* data, size_t bytes) const;

private:
    std::vector<std::pair<uintptr_t, uintptr_t>> m_ranges;  // [begin, end)
};

/// A weight as optimum-intel, NNCF and pagewheel's converter write it:
///
///     Constant u4 | i4 | u8 | i8 | f4e2m1 [n, k] or [n, groups, group]
///         -> Convert [-> Subtract zero point] -> Multiply scale [-> Reshape [n, k]] [-> Convert]
///
/// Scale and zero point are constants, converted or not, with one value per row and group, per row
/// or in all. All may have one more dimension in front: the experts of a layer. Where products of
/// bf16 are fast, a constant of f16 or bf16 [n, k] that is converted to f32 is one, too.
struct CompressedWeights {
    std::shared_ptr<ov::op::v0::Constant> values, scales;  // of f16 and bf16 null
    std::shared_ptr<ov::op::v0::Constant> zero_points;     // null: zero
    size_t n = 0, k = 0, groups = 1;
    size_t experts = 0;  // so many matrices [n, k]; 0: it is one and has no such dimension
    kernels::WeightType type = kernels::WeightType::u4;

    bool is_float() const { return !scales; }

    /// The rows of all matrices.
    size_t rows() const { return (experts ? experts : 1) * n; }

    /// Packs one matrix into `memory`; what is needed besides lives only meanwhile.
    std::shared_ptr<const kernels::PackedLinear> pack(kernels::WeightMemory& memory) const;
    /// Gives the pages of the files that they are mapped from back to the system.
    void release(const MappedFiles& files) const;
};

/// Rows first, first + step, ... of a matrix, `count` of them.
struct RowChoice {
    size_t first = 0, step = 1, count = 0;
};

/// Packs the matrices of a stack one by one.
class StackPacker {
public:
    explicit StackPacker(const CompressedWeights& weights);
    kernels::PackedLinear pack(size_t expert, const RowChoice& rows,
                               kernels::WeightMemory& memory) const;

private:
    const CompressedWeights& m_weights;
    std::vector<float> m_scales, m_zero_points;  // [experts, n, groups] or none
};

/// What `output` is, if it is such a matrix and the kernels can take its groups; else null and
/// `reason` says why.
std::unique_ptr<CompressedWeights> find_compressed_weights(const ov::Output<ov::Node>& output,
                                                           std::string& reason);

}  // namespace pagewheel
