#include "ops/paged_attention.hpp"

#include <algorithm>
#include <cmath>

#include "base/check.hpp"

namespace pagewheel {
namespace {

template <class T>
const T* optional_data(const std::vector<T>& values) {
    return values.empty() ? nullptr : values.data();
}

/// An input that is no rows.
const ov::Tensor& tensor_of(const NativeInputs& inputs, PagedAttention::Input input) {
    return *inputs.tensors[input - PagedAttention::num_rows];
}

/// The caller's memory, handed in as an input and written through.
template <class T>
T* written(const ov::Tensor& tensor) {
    return const_cast<T*>(tensor.data<const T>());
}

void check_rows(const char* name, const Rows& rows, size_t count, size_t width) {
    check_argument(rows.count == count && rows.width == width, name, " is f32 [", rows.count, ",",
                   rows.width, "], expected f32 [", count, ",", width, "]");
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

void check_num_inputs(const NativeInputs& inputs) {
    const size_t num_inputs = inputs.rows.size() + inputs.tensors.size();
    check_argument(num_inputs == PagedAttention::num_inputs, "got ", num_inputs,
                   " inputs, expected ", size_t(PagedAttention::num_inputs));
}

/// Tokens whose keys and values are written, or TableBounds::any.
size_t num_written(const PagedAttention::Attributes& attributes, const NativeInputs& inputs) {
    if (!attributes.config.write_kv_cache) return kernels::TableBounds::any;
    using Op = PagedAttention;
    return inputs.rows[attributes.logits_indices ? Op::key : Op::query].count;
}

/// Shapes and types of all inputs but the tables; what the tables may lead to.
kernels::TableBounds check_tensors(const PagedAttention::Attributes& attributes,
                                   const NativeInputs& inputs) {
    using Op = PagedAttention;
    const kernels::AttentionConfig& config = attributes.config;
    const kernels::CacheLayout& layout = config.layout;
    const size_t queries = inputs.rows[Op::query].count, tokens = num_written(attributes, inputs);
    check_rows("query", inputs.rows[Op::query], queries, config.heads * layout.key_size);
    if (config.write_kv_cache) {
        check_rows("key", inputs.rows[Op::key], tokens, layout.kv_heads * layout.key_size);
        check_rows("value", inputs.rows[Op::value], tokens, layout.kv_heads * layout.value_size);
    }
    const size_t num_blocks =
        check_blocks("key_blocks", tensor_of(inputs, Op::key_blocks), layout.key_block_bytes());
    const size_t num_value_blocks = check_blocks(
        "value_blocks", tensor_of(inputs, Op::value_blocks), layout.value_block_bytes());
    check_argument(num_blocks == num_value_blocks, "there are ", num_blocks, " key blocks and ",
                   num_value_blocks, " value blocks, expected as many");
    return {tokens,
            queries,
            num_blocks,
            layout.block_size,
            config.rotary_dims,
            config.heads * layout.key_size};
}

kernels::BatchTables read_tables(const ov::Tensor& tensor,
                                 const PagedAttention::Attributes& attributes) {
    check_argument(tensor.get_element_type() == ov::element::i32, "batch_tables has type ",
                   tensor.get_element_type(), ", expected i32");
    const auto queries =
        attributes.logits_indices ? kernels::Queries::LOGITS : kernels::Queries::ALL;
    return {written<int32_t>(tensor), tensor.get_size(), attributes.layer, queries};
}

/// The last queries of each sequence, as they came in.
void write_observed_queries(const kernels::AttentionBatch& batch, size_t query_size) {
    const kernels::BatchTables& tables = batch.tables;
    if (tables.observed_queries.size == 0) return;
    float* out = tables.observed_queries.values;
    for (size_t i = 0; i < tables.num_sequences(); ++i) {
        const auto end = size_t(tables.subsequence_begins[i + 1]);
        const size_t count = tables.num_observed_of(i);
        out = std::copy_n(batch.query + (end - count) * query_size, count * query_size, out);
    }
}

}  // namespace

void PagedAttention::validate_and_infer_types() {
    const kernels::AttentionConfig& config = m_attributes.config;
    NODE_VALIDATION_CHECK(this, get_input_size() == num_inputs, "got ", get_input_size(),
                          " inputs, expected ", size_t(num_inputs));
    NODE_VALIDATION_CHECK(this, config.heads % config.layout.kv_heads == 0, "got ", config.heads,
                          " heads, expected a multiple of ", config.layout.kv_heads);
    NODE_VALIDATION_CHECK(this, config.soft_cap >= 0 && std::isfinite(config.soft_cap),
                          "soft_cap is ", config.soft_cap, ", expected 0 for none or more");
    const ov::PartialShape& rows = get_input_partial_shape(query);
    NODE_VALIDATION_CHECK(this, rows.rank().compatible(2), "got a query ", rows,
                          ", expected two dimensions");
    const ov::Dimension queries = rows.rank().is_static() ? rows[0] : ov::Dimension::dynamic();
    set_output_type(0, ov::element::f32, {queries, ov::Dimension(int64_t(output_width(0)))});
}

bool PagedAttention::visit_attributes(ov::AttributeVisitor& visitor) {
    // The runtime merges nodes that look alike, so all that tells them apart is listed.
    kernels::AttentionConfig& config = m_attributes.config;
    int64_t heads = int64_t(config.heads), window = int64_t(config.sliding_window),
            rotary_dims = int64_t(config.rotary_dims), layer = int64_t(m_attributes.layer);
    std::string format = kernels::cache_format_name(config.layout.format);
    visitor.on_attribute("heads", heads);
    visitor.on_attribute("sliding_window", window);
    visitor.on_attribute("rotary_dims", rotary_dims);
    visitor.on_attribute("layer", layer);
    visitor.on_attribute("cache_format", format);
    visitor.on_attribute("scale", config.scale);
    visitor.on_attribute("soft_cap", config.soft_cap);
    visitor.on_attribute("interleaved", config.interleaved);
    visitor.on_attribute("write_kv_cache", config.write_kv_cache);
    visitor.on_attribute("logits_indices", m_attributes.logits_indices);
    visitor.on_attribute("sinks", m_attributes.sinks);
    visitor.on_attribute("alibi_slopes", m_attributes.alibi_slopes);
    return true;
}

size_t PagedAttention::output_width(size_t) const {
    return m_attributes.config.heads * m_attributes.config.layout.value_size;
}

void PagedAttention::run(const NativeInputs& inputs, float* const* outputs) const {
    check_num_inputs(inputs);
    const size_t tokens = num_written(m_attributes, inputs);
    if (inputs.rows[query].count == 0 && (tokens == 0 || tokens == kernels::TableBounds::any))
        return;
    const kernels::TableBounds bounds = check_tensors(m_attributes, inputs);
    kernels::AttentionBatch batch;
    batch.query = inputs.rows[query].values;
    batch.key = inputs.rows[key].values;
    batch.value = inputs.rows[value].values;
    batch.output = outputs[0];
    batch.key_blocks = written<uint8_t>(tensor_of(inputs, key_blocks));
    batch.value_blocks = written<uint8_t>(tensor_of(inputs, value_blocks));
    batch.tables = read_tables(tensor_of(inputs, batch_tables), m_attributes);
    // A layer that reads another's cache gives no scores: they are the owner's.
    if (!m_attributes.config.write_kv_cache) {
        batch.tables.score_windows = {};
        batch.tables.observed_queries = {};
    }
    batch.tables.check(bounds);
    write_observed_queries(batch, bounds.query_size);
    batch.sinks = optional_data(m_attributes.sinks);
    batch.alibi_slopes = optional_data(m_attributes.alibi_slopes);
    kernels::paged_attention(m_attributes.config, batch, m_isa);
}

}  // namespace pagewheel
