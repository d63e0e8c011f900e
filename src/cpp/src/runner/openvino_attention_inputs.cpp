#include "runner/attention_inputs.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "model/port_names.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel {
namespace {

kernels::CacheFormat format_of(const ov::element::Type& type) {
    for (const kernels::CacheFormat format : kernels::all_cache_formats)
        if (!kernels::is_quantized(format) && type.get_type_name() == cache_format_name(format))
            return format;
    throw InvalidArgument(concat("OpenVINO's KV cache is ", type,
                                 "; its blocks can be evicted from as f32, bf16 and f16 alone: set "
                                 "KV_CACHE_PRECISION, or use attention_backend native"));
}

/// The layout of a cache whose ports are keys and values [blocks, kv heads, block size, head size].
kernels::CacheLayout layout_of(const CachePort& keys, const CachePort& values, size_t block_size) {
    const kernels::CacheFormat format = format_of(keys.type);
    const ov::Shape &k = keys.block_shape, &v = values.block_shape;
    check_argument(values.type == keys.type && k.size() == 3 && v.size() == 3 && v[0] == k[0] &&
                       k[1] == block_size && v[1] == block_size,
                   "OpenVINO's KV cache has blocks ", keys.type, " ", k, " and ", values.type, " ",
                   v,
                   "; eviction needs rows by head and token of one type: use "
                   "attention_backend native");
    return {format, block_size, k[0], k[2], v[2]};
}

size_t output_named(const ov::CompiledModel& model, const std::string& name) {
    for (size_t i = 0; i < model.outputs().size(); ++i)
        if (model.outputs()[i].get_names().count(name) != 0) return i;
    check_invariant(false, "the model has no output ", name);
    return 0;
}

std::vector<CacheLayer> cache_layers(const std::vector<OpenVinoAttentionLayer>& attention,
                                     const CacheGeometry& geometry,
                                     const RotaryDescription& rotary) {
    std::vector<CacheLayer> layers;
    for (const OpenVinoAttentionLayer& layer : attention) {
        if (!layer.owns_cache) {
            for (CacheLayer& owner : layers)
                if (owner.cache == layer.cache) owner.widen_window(layer.sliding_window);
            continue;
        }
        layers.push_back({{},
                          layer.layer,
                          layer.cache,
                          layer.sliding_window,
                          rotary_of_layer(rotary, layer.layer)});
    }
    std::sort(layers.begin(), layers.end(),
              [](const CacheLayer& a, const CacheLayer& b) { return a.cache < b.cache; });
    check_invariant(geometry.ports.size() == 2 * layers.size(), geometry.ports.size(),
                    " caches of ", layers.size(), " layers");
    for (size_t l = 0; l < layers.size(); ++l)
        layers[l].layout =
            layout_of(geometry.ports[2 * l], geometry.ports[2 * l + 1], geometry.block_size);
    return layers;
}

}  // namespace

bool OpenVinoAttentionInputs::serves(const ov::CompiledModel& model) {
    for (const char* name : {ports::past_lens, ports::subsequence_begins, ports::block_indices,
                             ports::block_indices_begins, ports::max_context_len})
        if (InputTensor(model, name).exists()) return true;
    return false;
}

OpenVinoAttentionInputs::OpenVinoAttentionInputs(const ov::CompiledModel& model,
                                                 std::vector<CacheLayer> layers)
    : AttentionInputs(std::move(layers)),
      m_indices(model),
      m_logits_inputs{{model, ports::logits_past_lens},
                      {model, ports::logits_subsequence_begins},
                      {model, ports::logits_block_indices},
                      {model, ports::logits_block_indices_begins}},
      m_past_lens(model, ports::past_lens),
      m_subsequence_begins(model, ports::subsequence_begins),
      m_block_indices_begins(model, ports::block_indices_begins),
      m_max_context_len(model, ports::max_context_len),
      m_windows(model, ports::score_window),
      m_outputs(m_layers.size()) {}

OpenVinoAttentionInputs::OpenVinoAttentionInputs(const ov::CompiledModel& model)
    : OpenVinoAttentionInputs(model, std::vector<CacheLayer>()) {
    m_tables.push_back({0, InputTensor(model, ports::block_indices)});
}

OpenVinoAttentionInputs::OpenVinoAttentionInputs(
    const ov::CompiledModel& model, const std::vector<OpenVinoAttentionLayer>& attention,
    const CacheGeometry& geometry, const RotaryDescription& rotary)
    : OpenVinoAttentionInputs(model, cache_layers(attention, geometry, rotary)) {
    check_invariant(m_windows.exists(), "the model has no input ", ports::score_window);
    check_invariant(!m_logits_inputs.past_lens.exists(), "the model has an input ",
                    ports::logits_past_lens, ", which knows of no eviction");
    for (const OpenVinoAttentionLayer& layer : attention) {
        const auto owner =
            size_t(std::find_if(m_layers.begin(), m_layers.end(),
                                [&](const CacheLayer& one) { return one.cache == layer.cache; }) -
                   m_layers.begin());
        m_tables.push_back({owner, InputTensor(model, layer.block_indices)});
        if (layer.owns_cache) m_outputs[owner] = output_named(model, layer.scores);
    }
}

void OpenVinoAttentionInputs::fill(ov::InferRequest& request, const Batch& batch,
                                   const std::vector<size_t>& windows) {
    const size_t sequences = batch.entries.size(), blocks = count_blocks(batch);
    fill_extents(batch, {m_past_lens.resize<int32_t>(request, sequences),
                         m_subsequence_begins.resize<int32_t>(request, sequences + 1),
                         m_block_indices_begins.resize<int32_t>(request, sequences + 1)});
    for (Table& layer : m_tables)
        fill_blocks(batch, layer.owner, layer.input.resize<int32_t>(request, blocks));
    size_t max_context = 0;
    for (const BatchEntry& entry : batch.entries)
        max_context = std::max(max_context, entry.sequence->num_slots() + entry.num_tokens);
    m_max_context_len.scalar<int32_t>(request) = int32_t(max_context);
    if (m_logits_inputs.past_lens.exists()) fill_logits(request, batch, windows);
    if (m_layers.empty()) return;
    fill_score_begins(batch, m_score_begins);
    std::copy(windows.begin(), windows.end(), m_windows.resize<int32_t>(request, sequences));
}

void OpenVinoAttentionInputs::fill_logits(ov::InferRequest& request, const Batch& batch,
                                          const std::vector<size_t>& windows) {
    size_t sequences = 0, blocks = 0;
    for (size_t i = 0; i < batch.entries.size(); ++i) {
        if (m_indices.count(batch, i, windows) == 0) continue;
        ++sequences;
        blocks += batch.entries[i].sequence->blocks.size();
    }
    auto* past_lens = m_logits_inputs.past_lens.resize<int32_t>(request, sequences);
    auto* begins = m_logits_inputs.subsequence_begins.resize<int32_t>(request, sequences + 1);
    auto* table = m_logits_inputs.block_indices.resize<int32_t>(request, blocks);
    auto* table_begins =
        m_logits_inputs.block_indices_begins.resize<int32_t>(request, sequences + 1);
    *begins = *table_begins = 0;
    for (size_t i = 0; i < batch.entries.size(); ++i) {
        const size_t count = m_indices.count(batch, i, windows);
        if (count == 0) continue;
        const BatchEntry& entry = batch.entries[i];
        const std::vector<BlockId>& held = entry.sequence->blocks;
        *past_lens++ = int32_t(entry.sequence->num_slots() + entry.num_tokens - count);
        begins[1] = *begins + int32_t(count);
        ++begins;
        table = std::copy(held.begin(), held.end(), table);
        table_begins[1] = *table_begins + int32_t(held.size());
        ++table_begins;
    }
}

const std::vector<const float*>& OpenVinoAttentionInputs::scores(ov::InferRequest& request,
                                                                 size_t entry) {
    m_pointers.clear();
    for (size_t output : m_outputs)
        m_pointers.push_back(request.get_output_tensor(output).data<const float>() +
                             m_score_begins[entry]);
    return m_pointers;
}

}  // namespace pagewheel
