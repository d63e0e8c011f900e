#include "ops/short_convolution.hpp"

#include <string>
#include <utility>

#include "base/check.hpp"

namespace pagewheel {

ShortConvolution::ShortConvolution(const ov::OutputVector& inputs,
                                   std::shared_ptr<const kernels::ShortConvolutionConfig> config)
    : NativeOp(inputs), m_config(std::move(config)) {
    constructor_validate_and_infer_types();
}

void ShortConvolution::validate_and_infer_types() {
    NODE_VALIDATION_CHECK(this, get_input_size() == num_inputs, "got ", get_input_size(),
                          " inputs, expected ", size_t(num_inputs));
    m_config->check();
    const ov::PartialShape expected{-1, int64_t(m_config->channels)};
    const ov::PartialShape& rows = get_input_partial_shape(x);
    NODE_VALIDATION_CHECK(this, rows.compatible(expected), "got tokens of shape ", rows,
                          ", expected ", expected);
    const ov::Dimension tokens = rows.rank().is_static() ? rows[0] : ov::Dimension::dynamic();
    set_output_type(0, ov::element::f32, {tokens, expected[1]});
}

std::shared_ptr<ov::Node> ShortConvolution::clone_with_new_inputs(
    const ov::OutputVector& inputs) const {
    return std::make_shared<ShortConvolution>(inputs, m_config);
}

bool ShortConvolution::visit_attributes(ov::AttributeVisitor& visitor) {
    // Tells nodes of different weights apart, which the runtime would merge.
    std::string identity = concat(static_cast<const void*>(m_config.get()));
    visitor.on_attribute("config", identity);
    return true;
}

void ShortConvolution::run(const NativeInputs& inputs, float* const* outputs) const {
    const Rows& rows = inputs.rows[x];
    const ov::Tensor& memory = *inputs.tensors[states - num_row_inputs()];
    const ov::Tensor& words = *inputs.tensors[batch_tables - num_row_inputs()];
    check_argument(rows.width == m_config->channels, "x is f32 [", rows.count, ",", rows.width,
                   "], expected [tokens,", m_config->channels, "]");
    check_argument(memory.get_element_type() == ov::element::u8 && memory.get_shape().size() == 2 &&
                       memory.get_shape()[1] == m_config->state_bytes(),
                   "states are ", memory.get_element_type(), " ", memory.get_shape(),
                   ", expected u8 [states,", m_config->state_bytes(), "]");
    check_argument(words.get_element_type() == ov::element::i32, "batch_tables has type ",
                   words.get_element_type(), ", expected i32");
    if (rows.count == 0) return;
    // The caller's memory, handed in as inputs; the states are written through.
    const kernels::BatchTables tables(const_cast<int32_t*>(words.data<const int32_t>()),
                                      words.get_size(), 0);
    tables.check_states(rows.count, memory.get_shape()[0]);
    kernels::short_convolution(*m_config, tables, rows.values,
                               const_cast<uint8_t*>(memory.data<const uint8_t>()), outputs[0]);
}

}  // namespace pagewheel
