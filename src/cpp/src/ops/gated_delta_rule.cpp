#include "ops/gated_delta_rule.hpp"

#include <string>
#include <utility>

#include "base/check.hpp"

namespace pagewheel {

GatedDeltaRule::GatedDeltaRule(const ov::OutputVector& inputs,
                               std::shared_ptr<const kernels::GatedDeltaRuleConfig> config,
                               const Offsets& offsets)
    : NativeOp(inputs), m_config(std::move(config)), m_offsets(offsets) {
    constructor_validate_and_infer_types();
}

size_t GatedDeltaRule::width(size_t input) const {
    switch (Input(input)) {
        case queries:
        case keys:
            return m_config->key_width();
        case decays:
        case betas:
            return m_config->value_heads;
        case values:
        case gates:
            return m_config->value_width();
    }
    return 0;
}

void GatedDeltaRule::validate_and_infer_types() {
    NODE_VALIDATION_CHECK(this, get_input_size() == num_row_inputs() + 2, "got ", get_input_size(),
                          " inputs, expected ", num_row_inputs() + 2);
    m_config->check();
    for (size_t i = 0; i < num_row_inputs(); ++i) {
        const ov::PartialShape& rows = get_input_partial_shape(i);
        const ov::Dimension needed(int64_t(m_offsets[i] + width(i)), -1);
        NODE_VALIDATION_CHECK(
            this, rows.rank().is_dynamic() || (rows.size() == 2 && rows[1].compatible(needed)),
            "got input ", i, " of shape ", rows, ", expected [tokens,", needed, "]");
    }
    const ov::PartialShape& rows = get_input_partial_shape(0);
    const ov::Dimension tokens = rows.rank().is_static() ? rows[0] : ov::Dimension::dynamic();
    set_output_type(0, ov::element::f32, {tokens, int64_t(m_config->value_width())});
}

std::shared_ptr<ov::Node> GatedDeltaRule::clone_with_new_inputs(
    const ov::OutputVector& inputs) const {
    return std::make_shared<GatedDeltaRule>(inputs, m_config, m_offsets);
}

bool GatedDeltaRule::visit_attributes(ov::AttributeVisitor& visitor) {
    // Tells nodes of different weights apart, which the runtime would merge.
    std::string identity = concat(static_cast<const void*>(m_config.get()));
    visitor.on_attribute("config", identity);
    return true;
}

void GatedDeltaRule::run(const NativeInputs& inputs, float* const* outputs) const {
    const size_t count = inputs.rows[0].count;
    std::array<kernels::StridedRows, most_rows> rows;
    for (size_t i = 0; i < num_row_inputs(); ++i) {
        const Rows& from = inputs.rows[i];
        check_argument(from.count == count && from.width >= m_offsets[i] + width(i), "input ", i,
                       " is f32 [", from.count, ",", from.width, "], expected [", count, ",",
                       m_offsets[i] + width(i), "] or wider");
        rows[i] = {from.values + m_offsets[i], from.width};
    }
    const ov::Tensor& memory = *inputs.tensors[0];
    const ov::Tensor& words = *inputs.tensors[1];
    check_argument(memory.get_element_type() == ov::element::u8 && memory.get_shape().size() == 2 &&
                       memory.get_shape()[1] == m_config->state_bytes(),
                   "states are ", memory.get_element_type(), " ", memory.get_shape(),
                   ", expected u8 [states,", m_config->state_bytes(), "]");
    check_argument(words.get_element_type() == ov::element::i32, "batch_tables has type ",
                   words.get_element_type(), ", expected i32");
    if (count == 0) return;
    // The caller's memory, handed in as inputs; the states are written through.
    const kernels::BatchTables tables(const_cast<int32_t*>(words.data<const int32_t>()),
                                      words.get_size(), 0);
    tables.check_states(count, memory.get_shape()[0]);
    kernels::gated_delta_rule(
        *m_config, tables,
        {rows[queries], rows[keys], rows[values], rows[decays], rows[betas], rows[gates]},
        const_cast<uint8_t*>(memory.data<const uint8_t>()), outputs[0]);
}

}  // namespace pagewheel
