// Operations of pagewheel's that hang together, as one OpenVINO operation on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ops/cache_directory.hpp"
#include "ops/native_op.hpp"
#include "ops/region_profile.hpp"
#include "ops/region_scratch.hpp"

namespace pagewheel {

/// Where a count of rows comes from: the elements of the region's input by so many each.
struct RowCount {
    size_t input = 0, width = 1;

    friend bool operator==(const RowCount& a, const RowCount& b) {
        return a.input == b.input && a.width == b.width;
    }
};

/// Rows that operations of a region read or write.
struct RegionValue {
    static constexpr size_t none = SIZE_MAX;

    size_t width = 0;
    RowCount rows;
    size_t input = none;   ///< the region's input that it is; none: an operation writes it
    size_t output = none;  ///< the region's output that it is
};

/// An input of an operation that is no rows.
struct RegionTensor {
    bool is_cache = false;  ///< of the region's caches, or of its inputs
    size_t number = 0;
};

/// One operation: its inputs and outputs by number.
struct RegionStep {
    std::shared_ptr<const NativeOp> op;  ///< its own inputs, as a node, mean nothing
    std::string name;                    ///< of the node that it was
    std::vector<size_t> rows;            ///< values; its first inputs
    std::vector<RegionTensor> tensors;   ///< its other inputs
    std::vector<size_t> outputs;         ///< values
};

/// What a region computes: steps in an order that has each value written before it is read.
struct RegionDescription {
    struct Output {
        size_t value;
        ov::PartialShape shape;  ///< at most one dimension is dynamic, and that is not the last
    };
    std::string name;  ///< of its node
    std::vector<RegionValue> values;
    std::vector<RegionStep> steps;
    std::vector<Output> outputs;
    std::vector<CacheInput> caches;        ///< all of the model's that its directory names
    size_t directory = RegionValue::none;  ///< the region's input that it is, if there are any
};

/// A description and all that calls need beyond it. Shared by a node and its copies: the plugin
/// copies a node at every inference.
class RegionPlan {
public:
    /// Throws std::logic_error for a description that is none.
    explicit RegionPlan(RegionDescription description);

    const RegionDescription& description() const { return m_description; }
    RegionProfile& profile() const { return m_profile; }

    /// Runs the steps one after the other. May be called by several threads at once. Throws what
    /// an operation throws, with its name before the message.
    void run(ov::TensorVector& outputs, const ov::TensorVector& inputs) const;

private:
    /// Memory that values with as many rows have one after the other.
    struct Slot {
        RowCount rows;
        size_t width = 0;
    };

    void assign_slots();
    void place_values(RegionScratch& scratch, ov::TensorVector& outputs,
                      const ov::TensorVector& inputs) const;
    void run_step(size_t i, RegionScratch& scratch, const ov::TensorVector& inputs,
                  const std::vector<ov::Tensor>& caches) const;

    RegionDescription m_description;
    std::vector<Slot> m_slots;
    std::vector<size_t> m_value_slots;  // of each value; none where it is no slot's
    mutable RegionScratchPool m_scratch;
    mutable RegionProfile m_profile;
};

/// Runs operations that hang together one after the other, on memory of its own for what they pass
/// on to each other.
///
/// A node of a type that the CPU plugin does not know costs it 7 to 14 microseconds at every
/// inference, the more the more inputs (docs/performance.md): about as much as a small matrix does.
/// So all of a model's layers are one.
class NativeRegion : public ov::op::Op {
public:
    OPENVINO_OP("NativeRegion", "pagewheel")

    NativeRegion() = default;
    NativeRegion(const ov::OutputVector& inputs, std::shared_ptr<const RegionPlan> plan);

    void validate_and_infer_types() override;
    std::shared_ptr<ov::Node> clone_with_new_inputs(const ov::OutputVector& inputs) const override;
    bool visit_attributes(ov::AttributeVisitor& visitor) override;
    bool has_evaluate() const override { return true; }
    bool evaluate(ov::TensorVector& outputs, const ov::TensorVector& inputs) const override;

    const std::shared_ptr<const RegionPlan>& plan() const { return m_plan; }

private:
    std::shared_ptr<const RegionPlan> m_plan;
};

}  // namespace pagewheel
