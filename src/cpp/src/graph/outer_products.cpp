#include "graph/outer_products.hpp"

#include "graph/node_queries.hpp"
#include "openvino/op/matmul.hpp"
#include "openvino/op/multiply.hpp"

namespace pagewheel {
namespace {

bool is_outer_product(const ov::op::v0::MatMul& matmul) {
    if (matmul.get_transpose_a() || matmul.get_transpose_b() ||
        matmul.get_output_element_type(0) != ov::element::f32)
        return false;
    const ov::PartialShape& a = matmul.get_input_partial_shape(0);
    const ov::PartialShape& b = matmul.get_input_partial_shape(1);
    return a.rank().is_static() && b.rank().is_static() && a.size() > 1 && b.size() > 1 &&
           a[a.size() - 1] == 1 && b[b.size() - 2] == 1;
}

}  // namespace

size_t multiply_outer_products(const std::shared_ptr<ov::Model>& model) {
    size_t replaced = 0;
    for (const auto& node : model->get_ordered_ops()) {
        const auto matmul = ov::as_type_ptr<ov::op::v0::MatMul>(node);
        if (!matmul || !is_outer_product(*matmul)) continue;
        replace_with(matmul, std::make_shared<ov::op::v1::Multiply>(matmul->input_value(0),
                                                                    matmul->input_value(1)));
        ++replaced;
    }
    return replaced;
}

}  // namespace pagewheel
