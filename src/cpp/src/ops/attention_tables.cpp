#include "ops/attention_tables.hpp"

#include <algorithm>
#include <numeric>

#include "check.hpp"

namespace pagewheel {

// Packed: the sizes of the tables, then the tables.

AttentionTables::AttentionTables(const ov::OutputVector& tables) : Op(tables) {
    constructor_validate_and_infer_types();
}

void AttentionTables::validate_and_infer_types() {
    NODE_VALIDATION_CHECK(this, get_input_size() == num_tables, "got ", get_input_size(),
                          " inputs, expected ", num_tables);
    ov::Dimension size = int64_t(num_tables);
    for (size_t i = 0; i < num_tables; ++i) {
        const ov::PartialShape& shape = get_input_partial_shape(i);
        NODE_VALIDATION_CHECK(
            this, shape.rank().compatible(1) && get_input_element_type(i) == ov::element::i32,
            "got input ", i, " of ", get_input_element_type(i), " ", shape,
            ", expected i32 of one dimension");
        size += shape.rank().is_static() ? shape[0] : ov::Dimension::dynamic();
    }
    set_output_type(0, ov::element::i32, {size});
}

std::shared_ptr<ov::Node> AttentionTables::clone_with_new_inputs(
    const ov::OutputVector& inputs) const {
    return std::make_shared<AttentionTables>(inputs);
}

bool AttentionTables::evaluate(ov::TensorVector& outputs, const ov::TensorVector& inputs) const {
    Sizes sizes;
    for (size_t i = 0; i < num_tables; ++i) sizes[i] = inputs[i].get_size();
    outputs[0].set_shape({packed_size(sizes)});
    const Tables tables = lay_out(outputs[0].data<int32_t>(), sizes);
    for (size_t i = 0; i < num_tables; ++i)
        if (sizes[i] > 0) std::copy_n(inputs[i].data<const int32_t>(), sizes[i], tables[i]);
    return true;
}

size_t AttentionTables::packed_size(const Sizes& sizes) {
    return std::accumulate(sizes.begin(), sizes.end(), num_tables);
}

AttentionTables::Tables AttentionTables::lay_out(int32_t* packed, const Sizes& sizes) {
    Tables tables;
    int32_t* table = packed + num_tables;
    for (size_t i = 0; i < num_tables; ++i) {
        packed[i] = int32_t(sizes[i]);
        tables[i] = table;
        table += sizes[i];
    }
    return tables;
}

UnpackedTables::UnpackedTables(const ov::Tensor& packed) {
    constexpr size_t tables = AttentionTables::num_tables;
    check_argument(packed.get_element_type() == ov::element::i32 && packed.get_size() >= tables,
                   "the tables are ", packed.get_element_type(), " of ", packed.get_size(),
                   " entries, expected i32 of at least ", tables);
    const auto* values = packed.data<const int32_t>();
    size_t begin = tables;
    for (size_t i = 0; i < tables; ++i) {
        const size_t left = packed.get_size() - begin;
        check_argument(values[i] >= 0 && size_t(values[i]) <= left, "table ", i, " has ", values[i],
                       " entries, expected at most ", left);
        table[i] = values + begin;
        size[i] = size_t(values[i]);
        begin += size[i];
    }
}

}  // namespace pagewheel
