#include "ops/state_ops.hpp"

#include "base/check.hpp"

namespace pagewheel {

void StateOp::validate_and_infer_types() {
    NODE_VALIDATION_CHECK(this, get_input_size() == num_row_inputs() + 2, "got ", get_input_size(),
                          " inputs, expected ", num_row_inputs() + 2);
    check_config();
    for (size_t i = 0; i < num_row_inputs(); ++i) {
        const ov::PartialShape& rows = get_input_partial_shape(i);
        const ov::Dimension needed(int64_t(m_offsets[i] + row_width(i)), -1);
        NODE_VALIDATION_CHECK(
            this, rows.rank().is_dynamic() || (rows.size() == 2 && rows[1].compatible(needed)),
            "got input ", i, " of shape ", rows, ", expected [tokens,", needed, "]");
    }
    const ov::PartialShape& rows = get_input_partial_shape(0);
    const ov::Dimension tokens = rows.rank().is_static() ? rows[0] : ov::Dimension::dynamic();
    set_output_type(0, ov::element::f32, {tokens, int64_t(output_width(0))});
}

bool StateOp::visit_attributes(ov::AttributeVisitor& visitor) {
    visit_identity(visitor, "config", config_identity());
    return true;
}

void StateOp::run(const NativeInputs& inputs, float* const* outputs) const {
    const size_t count = inputs.rows[0].count;
    RowViews rows;
    for (size_t i = 0; i < num_row_inputs(); ++i) {
        const Rows& from = inputs.rows[i];
        const size_t needed = m_offsets[i] + row_width(i);
        check_argument(from.count == count && from.width >= needed, "input ", i, " is f32 [",
                       from.count, ",", from.width, "], expected [", count, ",", needed,
                       "] or wider");
        rows[i] = {from.values + m_offsets[i], from.width};
    }
    const ov::Tensor& memory = *inputs.tensors[0];
    const ov::Tensor& words = *inputs.tensors[1];
    check_argument(memory.get_element_type() == ov::element::u8 && memory.get_shape().size() == 2 &&
                       memory.get_shape()[1] == state_bytes(),
                   "states are ", memory.get_element_type(), " ", memory.get_shape(),
                   ", expected u8 [states,", state_bytes(), "]");
    check_argument(words.get_element_type() == ov::element::i32, "batch_tables has type ",
                   words.get_element_type(), ", expected i32");
    if (count == 0) return;
    // The caller's memory, handed in as inputs; the states are written through.
    const kernels::BatchTables tables(const_cast<int32_t*>(words.data<const int32_t>()),
                                      words.get_size(), 0);
    tables.check_states(count, memory.get_shape()[0]);
    compute(tables, rows, const_cast<uint8_t*>(memory.data<const uint8_t>()), outputs[0]);
}

void ShortConvolution::compute(const kernels::BatchTables& tables, const RowViews& rows,
                               uint8_t* states, float* output) const {
    check_argument(rows[0].stride == m_config->channels, "tokens have ", rows[0].stride,
                   " channels, expected ", m_config->channels);
    kernels::short_convolution(*m_config, tables, rows[0].values, states, output);
}

size_t GatedDeltaRule::row_width(size_t input) const {
    switch (Input(input)) {
        case queries:
        case keys:
            return m_config->key_width();
        case decays:
            return m_config->decay_width();
        case betas:
            return m_config->value_heads;
        case values:
        case gates:
            break;
    }
    return m_config->value_width();
}

void GatedDeltaRule::compute(const kernels::BatchTables& tables, const RowViews& rows,
                             uint8_t* states, float* output) const {
    kernels::gated_delta_rule(
        *m_config, tables,
        {rows[queries], rows[keys], rows[values], rows[decays], rows[betas], rows[gates]}, states,
        output);
}

size_t SelectiveSsm::row_width(size_t input) const {
    switch (Input(input)) {
        case b:
        case c:
            return m_config->groups * m_config->state_size;
        case dt:
            return m_config->heads;
        case x:
        case gate:
            break;
    }
    return m_config->heads * m_config->head_dim;
}

void SelectiveSsm::compute(const kernels::BatchTables& tables, const RowViews& rows,
                           uint8_t* states, float* output) const {
    kernels::selective_ssm(*m_config, tables, {rows[x], rows[b], rows[c], rows[dt], rows[gate]},
                           states, output);
}

}  // namespace pagewheel
