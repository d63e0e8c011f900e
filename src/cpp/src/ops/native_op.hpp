// What pagewheel's operations on rows of activations have in common.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/isa.hpp"
#include "openvino/op/op.hpp"

namespace pagewheel {

/// f32 rows one after the other; a view.
struct Rows {
    const float* values = nullptr;
    size_t count = 0, width = 0;

    Rows() = default;
    Rows(const float* values, size_t count, size_t width)
        : values(values), count(count), width(width) {}
    /// Rows of a tensor whose last dimension is a row. Throws ov::Exception if it is not f32.
    explicit Rows(const ov::Tensor& tensor);

    size_t size() const { return count * width; }
};

/// What an operation reads; views.
struct NativeInputs {
    std::vector<Rows> rows;                  ///< of its first inputs
    std::vector<const ov::Tensor*> tensors;  ///< its other inputs
};

/// An operation on the CPU that computes rows of activations from such rows, and from tensors of
/// any kind beside them: caches, tables. Its outputs are f32, each in the shape of the first input
/// but for the last dimension, and for the first where another input says how many rows there are.
///
/// It has no ov::Tensor where rows are concerned, so that a NativeRegion can run it on memory of
/// its own.
class NativeOp : public ov::op::Op {
public:
    using Op::Op;

    /// The first so many inputs are rows, at least one; the others are tensors.
    virtual size_t num_row_inputs() const = 0;
    /// The input that has as many rows as each output, or as many elements if it is a tensor.
    virtual size_t row_count_input() const { return 0; }
    /// Last dimension of an output.
    virtual size_t output_width(size_t output) const = 0;
    /// Whether a row depends on earlier rows of its sequence, by a state that is a tensor among the
    /// inputs and is written.
    virtual bool keeps_state() const { return false; }
    /// `outputs` are as many as the operation has, each with room for as many rows as
    /// row_count_input() says; they overlap no input. Throws InvalidArgument for inputs that
    /// do not fit. Several threads may run one operation at once.
    virtual void run(const NativeInputs& inputs, float* const* outputs) const = 0;

    bool has_evaluate() const final { return true; }
    bool evaluate(ov::TensorVector& outputs, const ov::TensorVector& inputs) const final;
};

/// A NativeOp that these attributes say all of, on kernels of this machine.
template <class Derived, class A>
class AttributedOp : public NativeOp {
public:
    using Attributes = A;
    const Attributes& attributes() const { return m_attributes; }

    std::shared_ptr<ov::Node> clone_with_new_inputs(const ov::OutputVector& inputs) const final {
        return std::make_shared<Derived>(inputs, m_attributes);
    }

protected:
    using Base = AttributedOp;

    AttributedOp() = default;
    AttributedOp(const ov::OutputVector& inputs, Attributes attributes)
        : NativeOp(inputs), m_attributes(std::move(attributes)) {}

    Attributes m_attributes;
    Isa m_isa = detected_isa();
};

/// An attribute that tells nodes of different weights apart, which the runtime would merge: where
/// they are.
void visit_identity(ov::AttributeVisitor& visitor, const std::string& name, const void* identity);

/// The shape of f32 rows of n for a first input of rows of k, which it checks.
ov::PartialShape output_of_rows(const ov::Node* node, size_t k, size_t n);

}  // namespace pagewheel
