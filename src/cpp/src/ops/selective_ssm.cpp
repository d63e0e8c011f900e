#include "ops/selective_ssm.hpp"

#include <string>
#include <utility>

#include "base/check.hpp"

namespace pagewheel {

SelectiveSsm::SelectiveSsm(const ov::OutputVector& inputs, Attributes attributes)
    : NativeOp(inputs), m_attributes(std::move(attributes)) {
    constructor_validate_and_infer_types();
}

size_t SelectiveSsm::columns(size_t input) const {
    const kernels::SelectiveSsmConfig& config = *m_attributes.config;
    switch (Input(input)) {
        case b:
        case c:
            return config.groups * config.state_size;
        case dt:
            return config.heads;
        case x:
        case gate:
        case most_row_inputs:
            break;
    }
    return config.heads * config.head_dim;
}

void SelectiveSsm::validate_and_infer_types() {
    NODE_VALIDATION_CHECK(this, get_input_size() == num_row_inputs() + 2, "got ", get_input_size(),
                          " inputs, expected ", num_row_inputs() + 2);
    m_attributes.config->check();
    for (size_t i = 0; i < num_row_inputs(); ++i) {
        const ov::PartialShape& rows = get_input_partial_shape(i);
        const auto least = int64_t(m_attributes.first_columns[i] + columns(i));
        NODE_VALIDATION_CHECK(this,
                              rows.rank().is_dynamic() ||
                                  (rows.size() == 2 && rows[1].get_max_length() == -1) ||
                                  (rows.size() == 2 && rows[1].get_max_length() >= least),
                              "got rows of shape ", rows, " as input ", i,
                              ", expected [tokens, at least ", least, "]");
    }
    const ov::PartialShape& rows = get_input_partial_shape(x);
    const ov::Dimension tokens = rows.rank().is_static() ? rows[0] : ov::Dimension::dynamic();
    set_output_type(0, ov::element::f32, {tokens, int64_t(columns(x))});
}

std::shared_ptr<ov::Node> SelectiveSsm::clone_with_new_inputs(
    const ov::OutputVector& inputs) const {
    return std::make_shared<SelectiveSsm>(inputs, m_attributes);
}

bool SelectiveSsm::visit_attributes(ov::AttributeVisitor& visitor) {
    // Tells nodes of different weights apart, which the runtime would merge.
    std::string identity = concat(static_cast<const void*>(m_attributes.config.get()));
    visitor.on_attribute("config", identity);
    return true;
}

void SelectiveSsm::run(const NativeInputs& inputs, float* const* outputs) const {
    const kernels::SelectiveSsmConfig& config = *m_attributes.config;
    const size_t count = inputs.rows[x].count;
    kernels::Columns views[most_row_inputs];
    for (size_t i = 0; i < num_row_inputs(); ++i) {
        const Rows& rows = inputs.rows[i];
        const size_t first = m_attributes.first_columns[i];
        check_argument(rows.count == count && rows.width >= first + columns(i), "input ", i,
                       " is f32 [", rows.count, ",", rows.width, "], expected [", count,
                       ", at least ", first + columns(i), "]");
        views[i] = {rows.values + first, rows.width};
    }
    const ov::Tensor& memory = *inputs.tensors[0];
    const ov::Tensor& words = *inputs.tensors[1];
    check_argument(memory.get_element_type() == ov::element::u8 && memory.get_shape().size() == 2 &&
                       memory.get_shape()[1] == config.state_bytes(),
                   "states are ", memory.get_element_type(), " ", memory.get_shape(),
                   ", expected u8 [states,", config.state_bytes(), "]");
    check_argument(words.get_element_type() == ov::element::i32, "batch_tables has type ",
                   words.get_element_type(), ", expected i32");
    if (count == 0) return;
    // The caller's memory, handed in as inputs; the states are written through.
    const kernels::BatchTables tables(const_cast<int32_t*>(words.data<const int32_t>()),
                                      words.get_size(), 0);
    tables.check_states(count, memory.get_shape()[0]);
    kernels::selective_ssm(config, tables, {views[x], views[b], views[c], views[dt], views[gate]},
                           const_cast<uint8_t*>(memory.data<const uint8_t>()), outputs[0], m_isa);
}

}  // namespace pagewheel
