#include "ops/native_op.hpp"

#include "base/check.hpp"

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

void visit_identity(ov::AttributeVisitor& visitor, const std::string& name, const void* identity) {
    std::string text = concat(identity);
    visitor.on_attribute(name, text);
}

ov::PartialShape output_of_rows(const ov::Node* node, size_t k, size_t n) {
    ov::PartialShape shape = node->get_input_partial_shape(0);
    NODE_VALIDATION_CHECK(node, shape.rank().is_static() && shape.size() > 0, "got an input ",
                          shape, ", expected at least one dimension");
    NODE_VALIDATION_CHECK(node, shape[shape.size() - 1].compatible(int64_t(k)), "got an input ",
                          shape, ", expected ", k, " in the last dimension");
    shape[shape.size() - 1] = int64_t(n);
    return shape;
}

}  // namespace pagewheel
