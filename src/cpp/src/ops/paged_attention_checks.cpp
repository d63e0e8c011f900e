#include "ops/paged_attention_checks.hpp"

#include <algorithm>
#include <cstdint>
#include <ostream>

#include "check.hpp"
#include "ops/attention_tables.hpp"
#include "ops/layer_tables.hpp"

namespace pagewheel {
namespace {

using Input = PagedAttention::Input;

void check_matrix(const char* name, const Rows& matrix, size_t rows, size_t columns) {
    check_argument(matrix.count == rows && matrix.width == columns, name, " is f32 [", matrix.count,
                   ",", matrix.width, "], expected f32 [", rows, ",", columns, "]");
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

void check_scores(const BatchTables& batch, size_t num_sequences, int64_t contexts) {
    const IntegerTable& windows = batch.score_windows;
    if (windows.size == 0) return;
    windows.check_size(num_sequences);
    for (size_t i = 0; i < num_sequences; ++i)
        check_argument(windows[i] >= 0, windows.name, "[", i, "] is ", windows[i],
                       ", expected at least 0");
    if (!batch.wants_scores()) return;
    const UncheckedMatrix& scores = batch.scores;
    check_argument(scores.type == ov::element::f32 && int64_t(scores.size()) >= contexts,
                   "scores is ", scores.type, " of ", scores.size(),
                   " entries, expected f32 of at least ", contexts);
}

void check_rotation(const PagedAttention::Attributes& attributes, const BatchTables& batch) {
    const kernels::AttentionConfig& config = attributes.config;
    const IntegerTable& rotated = batch.rotated;
    if (rotated.size == 0) return;
    const UncheckedMatrix &deltas = batch.deltas, &lut = batch.trig_lut;
    const size_t block_size = config.layout.block_size;
    check_argument(deltas.type == ov::element::i32 && deltas.rank == 2 &&
                       deltas.rows == rotated.size &&
                       (deltas.columns == 1 || deltas.columns == block_size),
                   deltas.name, " is ", deltas, ", expected i32 [", rotated.size, ", 1] or [",
                   rotated.size, ", ", block_size, "]");
    check_argument(config.rotary_dims > 0 && lut.type == ov::element::f32 && lut.rank == 2 &&
                       lut.columns == config.rotary_dims,
                   lut.name, " is ", lut, ", expected f32 [rows, ", config.rotary_dims, "]");
    const size_t num_block_indices = batch.block_indices.size;
    for (size_t i = 0; i < rotated.size; ++i) {
        check_argument(rotated[i] >= 0 && rotated[i] < int64_t(num_block_indices), rotated.name,
                       "[", i, "] is ", rotated[i], ", expected less than ", num_block_indices);
        check_argument(i == 0 || rotated[i] > rotated[i - 1], rotated.name, "[", i, "] is ",
                       rotated[i], ", expected more than ", i == 0 ? -1 : rotated[i - 1]);
    }
    const auto* values = static_cast<const int32_t*>(deltas.values);
    const int64_t rows = int64_t(lut.rows) - int64_t(attributes.lut_row_offset);
    // They can be thousands: first whether any is wrong, then which.
    uint32_t largest = 0;
    for (size_t i = 0; i < deltas.size(); ++i) largest = std::max(largest, uint32_t(values[i]));
    if (int64_t(largest) < rows) return;
    for (size_t i = 0; i < deltas.size(); ++i)
        check_argument(values[i] >= 0 && values[i] < rows, deltas.name, " has ", values[i],
                       ", expected a row of the layer's table, less than ", rows);
}

UncheckedMatrix unchecked(const char* name, const ov::Tensor& tensor) {
    const ov::Shape& shape = tensor.get_shape();
    const size_t rows = shape.empty() ? 1 : shape[0], size = tensor.get_size();
    return {name, tensor.get_element_type(), size > 0 ? tensor.data() : nullptr, shape.size(),
            rows, rows > 0 ? size / rows : 0};
}

/// A section as a matrix of `rows`; where that cannot be, as a vector.
UncheckedMatrix matrix(const char* name, const ov::element::Type& type,
                       const LayerTables::Section& section, size_t rows) {
    if (rows == 0 || section.size % rows != 0) return {name, type, section.values, 1, section.size};
    return {name, type, section.values, 2, rows, section.size / rows};
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

std::ostream& operator<<(std::ostream& stream, const UncheckedMatrix& matrix) {
    stream << matrix.type << " [" << matrix.rows;
    if (matrix.rank > 1) stream << "," << matrix.columns;
    return stream << "]";
}

BatchTables::BatchTables(const PagedAttention::Attributes& attributes, const NativeInputs& inputs)
    : past_lens("past_lens"),
      subsequence_begins("subsequence_begins"),
      block_indices("block_indices"),
      block_indices_begins("block_indices_begins"),
      score_windows("score_aggregation_window"),
      rotated("rotated_block_indices"),
      scores{"scores", ov::element::f32},
      deltas{"rotation_deltas", ov::element::i32},
      trig_lut{"rotation_trig_lut", ov::element::f32} {
    const size_t num_inputs = inputs.rows.size() + inputs.tensors.size();
    if (num_inputs == PagedAttention::num_packed_inputs) {
        if (attributes.layer)
            read_layer(attributes, tensor_of(inputs, Input::tables));
        else
            read_packed(tensor_of(inputs, Input::tables));
        return;
    }
    check_argument(num_inputs == Input::num_inputs, "got ", num_inputs, " inputs, expected ",
                   size_t(Input::num_inputs), " or ", PagedAttention::num_packed_inputs);
    read_separate(inputs);
}

void BatchTables::read_separate(const NativeInputs& inputs) {
    const auto read = [&](IntegerTable& table, Input input) {
        table = IntegerTable(table.name, tensor_of(inputs, input));
    };
    read(past_lens, Input::past_lens);
    read(subsequence_begins, Input::subsequence_begins);
    read(block_indices, Input::block_indices);
    read(block_indices_begins, Input::block_indices_begins);
    read(score_windows, Input::score_windows);
    read(rotated, Input::rotated_block_indices);
    scores = unchecked(scores.name, tensor_of(inputs, Input::scores));
    deltas = unchecked(deltas.name, tensor_of(inputs, Input::rotation_deltas));
    trig_lut = unchecked(trig_lut.name, tensor_of(inputs, Input::rotation_trig_lut));
}

void BatchTables::read_packed(const ov::Tensor& packed) {
    const UnpackedTables tables(packed);
    IntegerTable* own[] = {&past_lens, &subsequence_begins, &block_indices, &block_indices_begins};
    for (size_t i = 0; i < AttentionTables::num_tables; ++i)
        *own[i] = IntegerTable(own[i]->name, tables.table[i], tables.size[i]);
}

void BatchTables::read_layer(const PagedAttention::Attributes& attributes,
                             const ov::Tensor& packed) {
    using Tables = LayerTables;
    const Tables tables(packed, *attributes.layer);
    const auto read = [](IntegerTable& table, const Tables::Section& section) {
        table = IntegerTable(table.name, section.values, section.size);
    };
    read(past_lens, tables.shared[Tables::past_lens]);
    read(subsequence_begins, tables.shared[Tables::subsequence_begins]);
    read(block_indices, tables.own[Tables::block_indices]);
    read(block_indices_begins, tables.shared[Tables::block_indices_begins]);
    // A layer that reads another's cache gives no scores: they are the owner's.
    if (attributes.config.write_kv_cache) read(score_windows, tables.shared[Tables::score_windows]);
    read(rotated, tables.own[Tables::rotated_block_indices]);
    scores = matrix(scores.name, scores.type, tables.own[Tables::scores], 1);
    deltas = matrix(deltas.name, deltas.type, tables.own[Tables::rotation_deltas], rotated.size);
    const Tables::Section& lut = tables.own[Tables::rotation_trig_lut];
    const size_t dims = attributes.config.rotary_dims;
    const size_t rows = dims > 0 && lut.size % dims == 0 ? lut.size / dims : 0;
    trig_lut = matrix(trig_lut.name, trig_lut.type, lut, rows);
}

bool BatchTables::wants_scores() const {
    return std::any_of(score_windows.values, score_windows.values + score_windows.size,
                       [](int32_t w) { return w > 0; });
}

void check_paged_attention(const PagedAttention::Attributes& attributes, const NativeInputs& inputs,
                           const BatchTables& batch) {
    const kernels::AttentionConfig& config = attributes.config;
    const kernels::CacheLayout& layout = config.layout;
    const size_t tokens = inputs.rows[Input::query].count;
    check_matrix("query", inputs.rows[Input::query], tokens, config.heads * layout.key_size);
    check_matrix("key", inputs.rows[Input::key], tokens, layout.kv_heads * layout.key_size);
    check_matrix("value", inputs.rows[Input::value], tokens, layout.kv_heads * layout.value_size);
    const size_t num_blocks =
        check_blocks("key_blocks", tensor_of(inputs, Input::key_blocks), layout.key_block_bytes());
    const size_t num_value_blocks = check_blocks(
        "value_blocks", tensor_of(inputs, Input::value_blocks), layout.value_block_bytes());
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
    check_scores(batch, num_sequences, contexts);
    check_rotation(attributes, batch);
}

}  // namespace pagewheel
