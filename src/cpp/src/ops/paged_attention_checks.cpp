#include "ops/paged_attention_checks.hpp"

#include <algorithm>
#include <cstdint>

#include "check.hpp"

namespace pagewheel {
namespace {

using Input = PagedAttention::Input;

void check_matrix(const char* name, const ov::Tensor& tensor, size_t rows, size_t columns) {
    check_argument(tensor.get_element_type() == ov::element::f32 &&
                       tensor.get_shape() == ov::Shape{rows, columns},
                   name, " is ", tensor.get_element_type(), " ", tensor.get_shape(),
                   ", expected f32 ", ov::Shape{rows, columns});
}

/// Blocks of the pool; 0 if a block has no bytes.
size_t check_blocks(const char* name, const ov::Tensor& tensor, size_t block_bytes) {
    check_argument(tensor.get_element_type() == ov::element::u8, name, " has type ",
                   tensor.get_element_type(), ", expected u8");
    const ov::Shape& shape = tensor.get_shape();
    const size_t blocks = shape.empty() ? 0 : shape[0];
    check_argument(blocks * block_bytes == tensor.get_byte_size(), name, " has shape ", shape,
                   ", expected blocks of ", block_bytes, " bytes");
    return blocks;
}

/// [0, a, b, ..., last] that grows by at least `least` each.
void check_begins(const IntegerTable& begins, size_t num_sequences, int64_t last, int64_t least) {
    begins.check_size(num_sequences + 1);
    check_argument(begins[0] == 0, begins.name, " begins with ", begins[0], ", expected 0");
    for (size_t i = 0; i < num_sequences; ++i)
        check_argument(begins[i + 1] - begins[i] >= least, begins.name, "[", i + 1, "] is ",
                       begins[i + 1], ", expected at least ", begins[i] + least);
    check_argument(begins[num_sequences] == last, begins.name, " ends with ", begins[num_sequences],
                   ", expected ", last);
}

void check_scores(const ov::TensorVector& inputs, size_t num_sequences, int64_t contexts) {
    const IntegerTable windows("score_aggregation_window", inputs[Input::score_windows]);
    if (windows.size == 0) return;
    windows.check_size(num_sequences);
    for (size_t i = 0; i < num_sequences; ++i)
        check_argument(windows[i] >= 0, windows.name, "[", i, "] is ", windows[i],
                       ", expected at least 0");
    if (!wants_scores(inputs[Input::score_windows])) return;
    const ov::Tensor& scores = inputs[Input::scores];
    check_argument(
        scores.get_element_type() == ov::element::f32 && int64_t(scores.get_size()) >= contexts,
        "scores is ", scores.get_element_type(), " of ", scores.get_size(),
        " entries, expected f32 of at least ", contexts);
}

void check_rotation(const PagedAttention::Attributes& attributes, const ov::TensorVector& inputs,
                    size_t num_block_indices) {
    const kernels::AttentionConfig& config = attributes.config;
    const IntegerTable rotated("rotated_block_indices", inputs[Input::rotated_block_indices]);
    if (rotated.size == 0) return;
    const ov::Tensor& deltas = inputs[Input::rotation_deltas];
    const ov::Tensor& lut = inputs[Input::rotation_trig_lut];
    const ov::Shape &deltas_shape = deltas.get_shape(), &lut_shape = lut.get_shape();
    const size_t block_size = config.layout.block_size;
    check_argument(deltas_shape.size() == 2 && deltas_shape[0] == rotated.size &&
                       (deltas_shape[1] == 1 || deltas_shape[1] == block_size),
                   "rotation_deltas has shape ", deltas_shape, ", expected [", rotated.size,
                   ", 1] or [", rotated.size, ", ", block_size, "]");
    check_argument(config.rotary_dims > 0 && lut.get_element_type() == ov::element::f32 &&
                       lut_shape.size() == 2 && lut_shape[1] == config.rotary_dims,
                   "rotation_trig_lut is ", lut.get_element_type(), " ", lut_shape,
                   ", expected f32 [rows, ", config.rotary_dims, "]");
    for (size_t i = 0; i < rotated.size; ++i) {
        check_argument(rotated[i] >= 0 && rotated[i] < int64_t(num_block_indices), rotated.name,
                       "[", i, "] is ", rotated[i], ", expected less than ", num_block_indices);
        check_argument(i == 0 || rotated[i] > rotated[i - 1], rotated.name, "[", i, "] is ",
                       rotated[i], ", expected more than ", i == 0 ? -1 : rotated[i - 1]);
    }
    const IntegerTable values("rotation_deltas", deltas);
    const int64_t rows = int64_t(lut_shape[0]) - int64_t(attributes.lut_row_offset);
    for (size_t i = 0; i < values.size; ++i)
        check_argument(values[i] >= 0 && values[i] < rows, "rotation_deltas has ", values[i],
                       ", expected a row of the layer's table, less than ", rows);
}

/// The packed form, or null.
std::optional<UnpackedTables> unpacked(const ov::TensorVector& inputs) {
    if (inputs.size() == PagedAttention::num_packed_inputs)
        return UnpackedTables(inputs[Input::tables]);
    check_argument(inputs.size() == Input::num_inputs, "got ", inputs.size(), " inputs, expected ",
                   size_t(Input::num_inputs), " or ", PagedAttention::num_packed_inputs);
    return {};
}

IntegerTable table(const char* name, size_t i, const ov::TensorVector& inputs,
                   const std::optional<UnpackedTables>& packed) {
    if (packed) return {name, packed->table[i], packed->size[i]};
    return {name, inputs[Input::past_lens + i]};
}

}  // namespace

IntegerTable::IntegerTable(const char* name, const ov::Tensor& tensor)
    : name(name), size(tensor.get_size()) {
    check_argument(tensor.get_element_type() == ov::element::i32, name, " has type ",
                   tensor.get_element_type(), ", expected i32");
    if (size > 0) values = tensor.data<const int32_t>();
}

void IntegerTable::check_size(size_t expected) const {
    check_argument(size == expected, name, " has ", size, " entries, expected ", expected);
}

BatchTables::BatchTables(const ov::TensorVector& inputs) : BatchTables(inputs, unpacked(inputs)) {}

BatchTables::BatchTables(const ov::TensorVector& inputs,
                         const std::optional<UnpackedTables>& packed)
    : past_lens(table("past_lens", 0, inputs, packed)),
      subsequence_begins(table("subsequence_begins", 1, inputs, packed)),
      block_indices(table("block_indices", 2, inputs, packed)),
      block_indices_begins(table("block_indices_begins", 3, inputs, packed)) {}

bool wants_scores(const ov::Tensor& score_windows) {
    if (score_windows.get_size() == 0) return false;
    const auto* windows = score_windows.data<const int32_t>();
    return std::any_of(windows, windows + score_windows.get_size(),
                       [](int32_t w) { return w > 0; });
}

void check_paged_attention(const PagedAttention::Attributes& attributes,
                           const ov::TensorVector& inputs, const BatchTables& batch) {
    const kernels::AttentionConfig& config = attributes.config;
    const kernels::CacheLayout& layout = config.layout;
    const ov::Shape& query_shape = inputs[Input::query].get_shape();
    const size_t tokens = query_shape.empty() ? 0 : query_shape[0];
    check_matrix("query", inputs[Input::query], tokens, config.heads * layout.key_size);
    check_matrix("key", inputs[Input::key], tokens, layout.kv_heads * layout.key_size);
    check_matrix("value", inputs[Input::value], tokens, layout.kv_heads * layout.value_size);
    const size_t num_blocks =
        check_blocks("key_blocks", inputs[Input::key_blocks], layout.key_block_bytes());
    const size_t num_value_blocks =
        check_blocks("value_blocks", inputs[Input::value_blocks], layout.value_block_bytes());
    check_argument(num_blocks == num_value_blocks, "there are ", num_blocks, " key blocks and ",
                   num_value_blocks, " value blocks, expected as many");

    const IntegerTable &past = batch.past_lens, &subsequences = batch.subsequence_begins;
    const IntegerTable &blocks = batch.block_indices, &block_begins = batch.block_indices_begins;
    const size_t num_sequences = past.size;
    check_begins(subsequences, num_sequences, int64_t(tokens), 1);
    check_begins(block_begins, num_sequences, int64_t(blocks.size), 0);
    int64_t contexts = 0;
    for (size_t i = 0; i < num_sequences; ++i) {
        check_argument(past[i] >= 0, past.name, "[", i, "] is ", past[i], ", expected at least 0");
        const int64_t context = past[i] + subsequences[i + 1] - subsequences[i];
        const int64_t held = (block_begins[i + 1] - block_begins[i]) * int64_t(layout.block_size);
        check_argument(context <= held, "sequence ", i, " has a context of ", context,
                       " tokens, its blocks hold ", held);
        contexts += context;
    }
    for (size_t i = 0; i < blocks.size; ++i)
        check_argument(blocks[i] >= 0 && blocks[i] < int64_t(num_blocks), blocks.name, "[", i,
                       "] is ", blocks[i], ", expected a block of the pool, less than ",
                       num_blocks);
    if (inputs.size() != Input::num_inputs) return;  // no scores, no rotation
    check_scores(inputs, num_sequences, contexts);
    check_rotation(attributes, inputs, blocks.size);
}

}  // namespace pagewheel
