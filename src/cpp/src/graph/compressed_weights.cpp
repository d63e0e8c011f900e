#include "graph/compressed_weights.hpp"

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

#include "base/check.hpp"
#include "graph/node_queries.hpp"
#include "kernels/activation_choice.hpp"
#include "openvino/op/multiply.hpp"
#include "openvino/op/reshape.hpp"
#include "openvino/op/subtract.hpp"

namespace pagewheel {
namespace {

using ov::op::v0::Constant;
using ov::op::v0::Convert;

std::optional<kernels::WeightType> weight_type(const ov::element::Type& type) {
    using kernels::WeightType;
    static const std::map<ov::element::Type_t, WeightType> types{
        {ov::element::u4, WeightType::u4},         {ov::element::i4, WeightType::i4},
        {ov::element::u8, WeightType::u8},         {ov::element::i8, WeightType::i8},
        {ov::element::f4e2m1, WeightType::f4e2m1}, {ov::element::f16, WeightType::f16},
        {ov::element::bf16, WeightType::bf16}};
    const auto found = types.find(type);
    return found == types.end() ? std::nullopt : std::optional(found->second);
}

/// The constant's values as f32 [n, groups], repeated where it has one per row or one in all.
std::vector<float> per_group(const Constant& constant, size_t n, size_t groups) {
    std::vector<float> values = constant.cast_vector<float>();
    if (values.size() == n * groups) return values;
    std::vector<float> all(n * groups);
    for (size_t i = 0; i < all.size(); ++i) all[i] = values[values.size() == 1 ? 0 : i / groups];
    return all;
}

/// Whether the constant's shape has one value per row and group ([n, groups, 1]), per row or in
/// all, over values of shape [n, groups, group] or [n, k].
bool fits(const Constant& constant, const ov::Shape& values, bool grouped) {
    if (ov::shape_size(constant.get_shape()) == 1) return true;
    ov::Shape expected = values;
    expected.back() = 1;
    ov::Shape per_row = expected;
    if (grouped) per_row[per_row.size() - 2] = 1;
    return constant.get_shape() == expected || constant.get_shape() == per_row;
}

}  // namespace

std::unique_ptr<CompressedWeights> find_compressed_weights(const ov::Output<ov::Node>& output,
                                                           std::string& reason) {
    const auto refuse = [&](const std::string& why) {
        reason = why;
        return std::unique_ptr<CompressedWeights>();
    };
    auto node = without_converts(output.get_node_shared_ptr());
    if (ov::is_type<ov::op::v1::Reshape>(node))
        node = without_converts(node->get_input_node_shared_ptr(0));
    auto found = std::make_unique<CompressedWeights>();
    found->values = ov::as_type_ptr<Constant>(node);
    if (const auto multiply = ov::as_type_ptr<ov::op::v1::Multiply>(node)) {
        found->scales = constant_under(multiply->input_value(1));
        node = multiply->get_input_node_shared_ptr(0);
        if (const auto subtract = ov::as_type_ptr<ov::op::v1::Subtract>(node)) {
            found->zero_points = constant_under(subtract->input_value(1));
            if (!found->zero_points) return refuse("its zero point is not a constant");
            node = subtract->get_input_node_shared_ptr(0);
        }
        if (found->scales && ov::is_type<Convert>(node))
            found->values = ov::as_type_ptr<Constant>(without_converts(node));
    }
    if (!found->values) return refuse("its weights are not compressed");
    const ov::element::Type type = found->values->get_element_type();
    const bool floats = type == ov::element::f16 || type == ov::element::bf16;
    const auto known = weight_type(type);
    if (floats != found->is_float() || !known) return refuse(concat("its weights are ", type));
    found->type = *known;
    if (floats && !kernels::has_fast_bf16(detected_isa()))
        return refuse(concat("its weights are ", type,
                             ", and products of bf16 are not fast on this processor"));

    const ov::Shape values = found->values->get_shape();
    const ov::PartialShape shape = output.get_partial_shape();
    const size_t stacked = shape.rank().is_static() && shape.size() == 3 ? 1 : 0;
    if ((values.size() != 2 + stacked && values.size() != 3 + stacked) || shape.is_dynamic() ||
        shape.size() != 2 + stacked || ov::shape_size(values) == 0)
        return refuse(concat("its weights have shape ", values));
    for (size_t i = 0; i <= stacked; ++i)
        if (shape[i].get_length() != int64_t(values[i]))
            return refuse(concat("its weights have shape ", values));
    const bool grouped = values.size() == 3 + stacked;
    found->experts = stacked ? values[0] : 0;
    found->n = values[stacked];
    found->k = ov::shape_size(values) / found->n / (stacked ? values[0] : 1);
    found->groups = grouped ? values[1 + stacked] : 1;
    if (found->values->get_element_type() == ov::element::f4e2m1 && found->zero_points)
        return refuse("its weights are f4e2m1 with zero points");
    if (found->groups > 1 && found->k / found->groups % kernels::PackedLinear::k_block != 0)
        return refuse(concat("its weights are in groups of ", found->k / found->groups));
    if ((found->scales && !fits(*found->scales, values, grouped)) ||
        (found->zero_points && !fits(*found->zero_points, values, grouped)))
        return refuse("its scales or zero points have another shape than its groups");
    return found;
}

std::shared_ptr<const kernels::PackedLinear> CompressedWeights::pack(
    kernels::WeightMemory& memory) const {
    return std::make_shared<const kernels::PackedLinear>(
        StackPacker(*this).pack(0, {0, 1, n}, memory));
}

void CompressedWeights::release(const MappedFiles& files) const {
    for (const auto& constant : {values, scales, zero_points})
        if (constant) files.release(constant->get_data_ptr(), constant->get_byte_size());
}

StackPacker::StackPacker(const CompressedWeights& weights) : m_weights(weights) {
    if (weights.scales) m_scales = per_group(*weights.scales, weights.rows(), weights.groups);
    if (weights.zero_points)
        m_zero_points = per_group(*weights.zero_points, weights.rows(), weights.groups);
}

kernels::PackedLinear StackPacker::pack(size_t expert, const RowChoice& rows,
                                        kernels::WeightMemory& memory) const {
    const size_t groups = m_weights.groups, first = expert * m_weights.n + rows.first;
    const auto chosen = [&](const std::vector<float>& all) {
        std::vector<float> some;
        for (size_t r = 0; r < (all.empty() ? 0 : rows.count); ++r) {
            const float* row = all.data() + (first + r * rows.step) * groups;
            some.insert(some.end(), row, row + groups);
        }
        return some;
    };
    const std::vector<float> scales = chosen(m_scales), zero_points = chosen(m_zero_points);
    kernels::LinearWeights weights;
    weights.n = rows.count;
    weights.k = m_weights.k;
    weights.group = weights.k / groups;
    weights.type = m_weights.type;
    weights.row_step = rows.step;
    weights.scales = scales.empty() ? nullptr : scales.data();
    weights.zero_points = zero_points.empty() ? nullptr : zero_points.data();
    const size_t bits = m_weights.values->get_element_type().bitwidth();
    weights.values = static_cast<const uint8_t*>(m_weights.values->get_data_ptr()) +
                     first * weights.k * bits / 8;
    return kernels::PackedLinear(weights, memory);
}

MappedFiles::MappedFiles() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        std::istringstream fields(line);
        uintptr_t begin = 0, end = 0;
        char dash = 0;
        std::string rights, offset, device, inode;
        fields >> std::hex >> begin >> dash >> end >> rights >> offset >> device >> inode;
        if (fields && inode != "0" && rights.compare(0, 3, "r--") == 0)
            m_ranges.emplace_back(begin, end);
    }
}

void MappedFiles::release(const void* data, size_t bytes) const {
#if defined(__linux__)
    const auto page = uintptr_t(sysconf(_SC_PAGESIZE)), address = uintptr_t(data);
    const uintptr_t begin = (address + page - 1) / page * page;
    const uintptr_t end = (address + bytes) / page * page;
    const bool mapped = std::any_of(m_ranges.begin(), m_ranges.end(), [&](const auto& range) {
        return range.first <= begin && end <= range.second;
    });
    // A wish: what stays resident does no harm.
    if (mapped && begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
#else
    (void)data;
    (void)bytes;
#endif
}

}  // namespace pagewheel
