#include "ops/gather_rows.hpp"

#include <cstring>

#include "base/check.hpp"
#include "kernels/team.hpp"

namespace pagewheel {
namespace {

template <class Index>
void gather(const Rows& rows, const ov::Tensor& indices, float* out) {
    const Index* index = indices.data<const Index>();
    for (size_t i = 0; i < indices.get_size(); ++i, out += rows.width) {
        check_argument(index[i] >= 0 && size_t(index[i]) < rows.count, "row ", index[i],
                       " is gathered of ", rows.count);
        std::memcpy(out, rows.values + size_t(index[i]) * rows.width, rows.width * sizeof(float));
    }
}

/// The rows of a table that `ids` name. All ids are checked before, as phases must not throw.
template <class Id>
void look_up(const kernels::PackedLinear& table, const ov::Tensor& ids, float* out) {
    const Id* id = ids.data<const Id>();
    const size_t count = ids.get_size(), k = table.k();
    for (size_t i = 0; i < count; ++i)
        check_argument(id[i] >= 0 && size_t(id[i]) < table.n(), "token ", id[i],
                       " is looked up in an embedding of ", table.n(), " rows");
    const auto row = [&](size_t i) { table.unpack_row(size_t(id[i]), out + i * k); };
    constexpr size_t few = 8;
    if (count > few) return kernels::run_phases(kernels::Phase{count, row});
    for (size_t i = 0; i < count; ++i) row(i);
}

}  // namespace

GatherRows::GatherRows(const ov::OutputVector& inputs) : NativeOp(inputs) {
    constructor_validate_and_infer_types();
}

void GatherRows::validate_and_infer_types() {
    NODE_VALIDATION_CHECK(this, get_input_size() == num_inputs, "got ", get_input_size(),
                          " inputs, expected ", size_t(num_inputs));
    ov::PartialShape shape = get_input_partial_shape(x);
    NODE_VALIDATION_CHECK(
        this, shape.rank().is_static() && shape.size() > 1 && shape[shape.size() - 1].is_static(),
        "got rows of shape ", shape, ", expected [rows, ..., width]");
    for (size_t i = 1; i + 1 < shape.size(); ++i)
        NODE_VALIDATION_CHECK(this, shape[i] == 1, "got rows of shape ", shape,
                              ", expected 1 between the first dimension and the last");
    const ov::element::Type type = get_input_element_type(indices);
    NODE_VALIDATION_CHECK(this,
                          type == ov::element::i32 || type == ov::element::i64 || type.is_dynamic(),
                          "got indices of type ", type, ", expected i32 or i64");
    const ov::PartialShape& count = get_input_partial_shape(indices);
    NODE_VALIDATION_CHECK(this, count.rank().compatible(1), "got indices of shape ", count,
                          ", expected [n]");
    shape[0] = count.rank().is_static() ? count[0] : ov::Dimension::dynamic();
    set_output_type(0, ov::element::f32, shape);
}

std::shared_ptr<ov::Node> GatherRows::clone_with_new_inputs(const ov::OutputVector& inputs) const {
    return std::make_shared<GatherRows>(inputs);
}

size_t GatherRows::output_width(size_t) const {
    const ov::PartialShape& shape = get_input_partial_shape(x);
    return size_t(shape[shape.size() - 1].get_length());
}

void GatherRows::run(const NativeInputs& inputs, float* const* outputs) const {
    const ov::Tensor& tensor = *inputs.tensors[0];
    if (tensor.get_element_type() == ov::element::i64)
        gather<int64_t>(inputs.rows[x], tensor, outputs[0]);
    else
        gather<int32_t>(inputs.rows[x], tensor, outputs[0]);
}

QuantizedEmbedding::QuantizedEmbedding(const ov::Output<ov::Node>& ids,
                                       std::shared_ptr<const kernels::PackedLinear> table)
    : Op({ids}), m_table(std::move(table)) {
    constructor_validate_and_infer_types();
}

void QuantizedEmbedding::validate_and_infer_types() {
    NODE_VALIDATION_CHECK(this, get_input_size() == 1, "got ", get_input_size(),
                          " inputs, expected 1");
    const ov::element::Type type = get_input_element_type(0);
    NODE_VALIDATION_CHECK(this,
                          type == ov::element::i32 || type == ov::element::i64 || type.is_dynamic(),
                          "got ids of type ", type, ", expected i32 or i64");
    NODE_VALIDATION_CHECK(this, m_table && m_table->has_integer_zero_points(),
                          "got a table without integer zero points");
    ov::PartialShape shape = get_input_partial_shape(0);
    if (shape.rank().is_static()) shape.push_back(int64_t(m_table->k()));
    set_output_type(0, ov::element::f32, shape);
}

std::shared_ptr<ov::Node> QuantizedEmbedding::clone_with_new_inputs(
    const ov::OutputVector& inputs) const {
    return std::make_shared<QuantizedEmbedding>(inputs.at(0), m_table);
}

bool QuantizedEmbedding::visit_attributes(ov::AttributeVisitor& visitor) {
    visit_identity(visitor, "table", m_table.get());
    return true;
}

bool QuantizedEmbedding::evaluate(ov::TensorVector& outputs, const ov::TensorVector& inputs) const {
    ov::Shape shape = inputs[0].get_shape();
    shape.push_back(m_table->k());
    outputs[0].set_shape(shape);
    if (inputs[0].get_element_type() == ov::element::i64)
        look_up<int64_t>(*m_table, inputs[0], outputs[0].data<float>());
    else
        look_up<int32_t>(*m_table, inputs[0], outputs[0].data<float>());
    return true;
}

}  // namespace pagewheel
