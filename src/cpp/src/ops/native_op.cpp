#include "ops/native_op.hpp"

namespace pagewheel {

Rows::Rows(const ov::Tensor& tensor) {
    const ov::Shape& shape = tensor.get_shape();
    width = shape.empty() ? 1 : shape.back();
    count = width > 0 ? tensor.get_size() / width : 0;
    values = tensor.data<const float>();
}

bool NativeOp::evaluate(ov::TensorVector& outputs, const ov::TensorVector& inputs) const {
    NativeInputs views;
    for (size_t i = 0; i < inputs.size(); ++i)
        if (i < num_row_inputs())
            views.rows.emplace_back(inputs[i]);
        else
            views.tensors.push_back(&inputs[i]);
    ov::Shape shape = inputs[0].get_shape();
    if (row_count_input() > 0) shape[0] = inputs[row_count_input()].get_shape()[0];
    std::vector<float*> values;
    for (size_t i = 0; i < outputs.size(); ++i) {
        shape.back() = output_width(i);
        outputs[i].set_shape(shape);
        values.push_back(outputs[i].data<float>());
    }
    run(views, values.data());
    return true;
}

}  // namespace pagewheel
