#include "ops/gather_rows.hpp"

#include <cstring>

#include "base/check.hpp"

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

}  // namespace pagewheel
