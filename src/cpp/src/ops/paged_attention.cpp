#include "ops/paged_attention.hpp"

#include <cmath>

#include "check.hpp"
#include "ops/paged_attention_checks.hpp"

namespace pagewheel {
namespace {

template <class T>
const T* optional_data(const std::vector<T>& values) {
    return values.empty() ? nullptr : values.data();
}

void add_rotation_and_scores(kernels::AttentionBatch& batch, const BatchTables& tables,
                             const PagedAttention::Attributes& attributes) {
    batch.num_rotated = tables.rotated.size;
    if (batch.num_rotated > 0) {
        batch.rotated_block_indices = tables.rotated.values;
        batch.rotation_deltas = static_cast<const int32_t*>(tables.deltas.values);
        batch.delta_width = tables.deltas.columns;
        batch.rotation_trig_lut = static_cast<const float*>(tables.trig_lut.values) +
                                  attributes.lut_row_offset * attributes.config.rotary_dims;
    }
    if (tables.wants_scores()) {
        batch.score_windows = tables.score_windows.values;
        // The caller's memory as well.
        batch.scores = static_cast<float*>(const_cast<void*>(tables.scores.values));
    }
}

}  // namespace

PagedAttention::PagedAttention(const ov::OutputVector& inputs, Attributes attributes)
    : NativeOp(inputs), m_attributes(std::move(attributes)) {
    constructor_validate_and_infer_types();
}

void PagedAttention::validate_and_infer_types() {
    const kernels::AttentionConfig& config = m_attributes.config;
    NODE_VALIDATION_CHECK(
        this, get_input_size() == num_inputs || get_input_size() == num_packed_inputs, "got ",
        get_input_size(), " inputs, expected ", size_t(num_inputs), " or ", num_packed_inputs);
    NODE_VALIDATION_CHECK(this, !m_attributes.layer || get_input_size() == num_packed_inputs,
                          "got ", get_input_size(), " inputs, expected ", num_packed_inputs,
                          " with a layer");
    NODE_VALIDATION_CHECK(this, config.heads % config.layout.kv_heads == 0, "got ", config.heads,
                          " heads, expected a multiple of ", config.layout.kv_heads);
    NODE_VALIDATION_CHECK(this, config.soft_cap >= 0 && std::isfinite(config.soft_cap),
                          "soft_cap is ", config.soft_cap, ", expected 0 for none or more");
    const ov::PartialShape& rows = get_input_partial_shape(query);
    NODE_VALIDATION_CHECK(this, rows.rank().compatible(2), "got a query ", rows,
                          ", expected two dimensions");
    const ov::Dimension tokens = rows.rank().is_static() ? rows[0] : ov::Dimension::dynamic();
    set_output_type(0, ov::element::f32, {tokens, ov::Dimension(int64_t(output_width(0)))});
}

std::shared_ptr<ov::Node> PagedAttention::clone_with_new_inputs(
    const ov::OutputVector& inputs) const {
    return std::make_shared<PagedAttention>(inputs, m_attributes);
}

bool PagedAttention::visit_attributes(ov::AttributeVisitor& visitor) {
    // The runtime merges nodes that look alike, so all that tells them apart is listed.
    kernels::AttentionConfig& config = m_attributes.config;
    int64_t heads = int64_t(config.heads), window = int64_t(config.sliding_window),
            rotary_dims = int64_t(config.rotary_dims),
            offset = int64_t(m_attributes.lut_row_offset),
            layer = m_attributes.layer ? int64_t(*m_attributes.layer) : -1;
    std::string format = kernels::cache_format_name(config.layout.format);
    visitor.on_attribute("heads", heads);
    visitor.on_attribute("sliding_window", window);
    visitor.on_attribute("rotary_dims", rotary_dims);
    visitor.on_attribute("lut_row_offset", offset);
    visitor.on_attribute("layer", layer);
    visitor.on_attribute("cache_format", format);
    visitor.on_attribute("scale", config.scale);
    visitor.on_attribute("soft_cap", config.soft_cap);
    visitor.on_attribute("interleaved", config.interleaved);
    visitor.on_attribute("write_kv_cache", config.write_kv_cache);
    visitor.on_attribute("sinks", m_attributes.sinks);
    visitor.on_attribute("alibi_slopes", m_attributes.alibi_slopes);
    return true;
}

size_t PagedAttention::output_width(size_t) const {
    return m_attributes.config.heads * m_attributes.config.layout.value_size;
}

void PagedAttention::run(const NativeInputs& inputs, float* const* outputs) const {
    if (inputs.rows[query].count == 0) return;
    const BatchTables tables(m_attributes, inputs);
    check_paged_attention(m_attributes, inputs, tables);

    kernels::AttentionBatch batch{};
    batch.query = inputs.rows[query].values;
    batch.key = inputs.rows[key].values;
    batch.value = inputs.rows[value].values;
    batch.output = outputs[0];
    // The caches are the caller's memory, handed in as inputs and written through.
    const auto blocks = [&](Input input) {
        return const_cast<uint8_t*>(tensor_of(inputs, input).data<const uint8_t>());
    };
    batch.key_blocks = blocks(key_blocks);
    batch.value_blocks = blocks(value_blocks);
    batch.num_sequences = tables.past_lens.size;
    batch.past_lens = tables.past_lens.values;
    batch.subsequence_begins = tables.subsequence_begins.values;
    batch.block_indices = tables.block_indices.values;
    batch.block_indices_begins = tables.block_indices_begins.values;
    add_rotation_and_scores(batch, tables, m_attributes);
    batch.sinks = optional_data(m_attributes.sinks);
    batch.alibi_slopes = optional_data(m_attributes.alibi_slopes);
    kernels::paged_attention(m_attributes.config, batch, m_isa);
}

}  // namespace pagewheel
