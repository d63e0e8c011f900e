// A model that OpenVINO runs: a batch in, logits out.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "cache/kv_cache.hpp"
#include "graph/compile_model.hpp"
#include "model/model_folder.hpp"
#include "openvino/core/any.hpp"
#include "openvino/runtime/infer_request.hpp"
#include "pagewheel/cache_eviction_config.hpp"
#include "runner/attention_inputs.hpp"
#include "runner/model.hpp"
#include "runner/model_inputs.hpp"

namespace pagewheel {

/// The compiled model, its request, its inputs and its cache.
class OpenVinoModel final : public Model {
public:
    /// Throws InvalidArgument for caches to be evicted from that eviction cannot move.
    explicit OpenVinoModel(CompiledGraph graph);

    size_t vocabulary() const override { return m_vocabulary; }
    size_t num_threads() const override;
    size_t most_exact_rows() const override;
    size_t block_size() const override { return m_graph.geometry.block_size; }
    size_t block_bytes() const override { return m_graph.geometry.block_bytes; }
    size_t blocks_per_state() const override { return m_graph.geometry.blocks_per_state(); }
    void allocate_cache(size_t num_blocks) override;
    BlockMemory& cache() override { return *m_cache; }
    /// Reads the weights.
    std::string cache_description() const override;
    Times times() const override { return m_times; }
    /// Mean times by node and operation inside a region, if the properties had PERF_COUNT.
    std::vector<ov::ProfilingInfo> profile() const;

    Logits run(const Batch& batch, const std::vector<size_t>& windows) override;
    size_t hidden_size() const override { return m_hidden_size; }
    const float* hidden_states() override;
    bool reads_hidden_states() const override { return m_hidden_input.exists(); }
    float* hidden_input(size_t num_tokens) override;
    const std::vector<int64_t>& drafted_tokens() const override { return m_graph.drafted_tokens; }
    const std::vector<const float*>& scores(size_t entry) override {
        return m_attention.front()->scores(m_request, entry);
    }
    bool observe_queries() override {
        return m_graph.rotary.unsupported.empty() && m_attention.front()->observe_queries();
    }
    const std::vector<const float*>& queries(size_t entry) override {
        return m_attention.front()->queries(entry);
    }
    std::vector<LayerCache> layer_caches() const override;
    const std::vector<RotaryKind>& rotated_in_place() const override { return m_rotated_in_place; }

private:
    CompiledGraph m_graph;
    ov::InferRequest m_request;
    std::unique_ptr<KvCache> m_cache;
    /// One for each kind of attention: a model whose caches are evicted from has one.
    std::vector<std::unique_ptr<AttentionInputs>> m_attention;
    std::vector<RotaryKind> m_rotated_in_place;
    BlockLayout m_blocks = BlockLayout::lanes;
    size_t m_vocabulary = 0;
    size_t m_logits_output = 0, m_hidden_output = 0;
    size_t m_hidden_size = 0;
    InputTensor m_hidden_input;
    Times m_times;
    TokenInputs m_tokens;
};

/// The folder's model, compiled; its warnings go to the log. `properties` are as
/// ContinuousBatchingPipeline takes them. Throws InvalidArgument for a device that is not
/// there (the message lists those that are) or a property that is refused. With `eviction` the
/// model can run on caches that were evicted from: on CPU, with the native attention or over a
/// cache of f32, bf16 or f16, and with rotation a model whose rotary frequencies are known; else
/// InvalidArgument says what is missing. `partner`: CompileOptions.
std::unique_ptr<OpenVinoModel> load_model(const ModelFolder& folder, const std::string& device,
                                          const ov::AnyMap& properties,
                                          const CacheEvictionConfig* eviction = nullptr,
                                          const ModelFolder* partner = nullptr);

}  // namespace pagewheel
