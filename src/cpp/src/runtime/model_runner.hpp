// A batch in, logits out.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cache/kv_cache.hpp"
#include "graph/native_regions.hpp"
#include "graph/stock_attention.hpp"
#include "model/cache_geometry.hpp"
#include "model/model_folder.hpp"
#include "openvino/runtime/core.hpp"
#include "openvino/runtime/infer_request.hpp"
#include "pagewheel/cache_eviction_config.hpp"
#include "runtime/attention_inputs.hpp"
#include "runtime/model.hpp"
#include "runtime/token_inputs.hpp"

namespace pagewheel {

/// A model as it is compiled.
struct PreparedGraph {
    std::shared_ptr<ov::Model> model;
    /// Why MatMuls were left to the plugin, one sentence each.
    std::vector<std::string> left;
    /// What of the model it does not compute, and of the properties it does not do, one sentence
    /// each.
    std::vector<std::string> left_out;
    /// What has a cache of pagewheel's attention; empty where attention is the plugin's.
    std::vector<CacheLayer> layers;
    /// pagewheel's operations that became one node.
    NativeRegions regions;
    /// The plugin's attention of a model whose caches are evicted from; else empty.
    std::vector<StockAttentionLayer> stock_layers;
};

/// Reads the folder's model, pages its attention, gathers its logits and puts pagewheel's own ops
/// where the properties ask for them (attention also for `eviction`); takes the properties that are
/// not OpenVINO's. Throws std::invalid_argument for a device that is not there or a property that
/// is refused.
PreparedGraph prepare_graph(ov::Core& core, const ModelFolder& folder, const std::string& device,
                            ov::AnyMap& properties, bool eviction = false);

/// The compiled model, its request, its inputs and its cache.
class ModelRunner final : public Model {
public:
    /// `properties` are as ContinuousBatchingPipeline takes them. Throws std::invalid_argument for
    /// a device that is not there (the message lists those that are) or a property that is refused.
    /// With `eviction` the model can run on caches that were evicted from: on CPU, with the native
    /// attention or over a cache of f32, bf16 or f16, and with rotation a model whose rotary
    /// frequencies are known; else std::invalid_argument says what is missing.
    ModelRunner(const ModelFolder& folder, const std::string& device, ov::AnyMap properties,
                const CacheEvictionConfig* eviction = nullptr);

    const CacheGeometry& geometry() const { return m_geometry; }
    size_t vocabulary() const override { return m_vocabulary; }
    size_t block_size() const override { return m_geometry.block_size; }
    size_t block_bytes() const override { return m_geometry.block_bytes; }
    void allocate_cache(size_t num_blocks) override;
    BlockMemory& cache() override { return *m_cache; }
    /// Reads the weights.
    std::string cache_description() const override;
    Times times() const override { return m_times; }
    /// Mean times by node and operation inside a region, if the properties had PERF_COUNT. A
    /// region's node has what its operations leave.
    std::vector<ov::ProfilingInfo> profile() const;

    Logits run(const Batch& batch, const std::vector<size_t>& windows) override;
    const std::vector<const float*>& scores(size_t entry) override {
        return m_attention.front()->scores(m_request, entry);
    }
    std::vector<LayerCache> layer_caches() const override;
    const std::vector<RotaryKind>& rotated_in_place() const override { return m_rotated_in_place; }

private:
    /// The properties that change what is in the cache, one per line.
    static std::string describe(const ov::AnyMap& properties);

    std::filesystem::path m_model_xml;
    std::string m_device, m_properties;  // as cache_description() has them
    ov::CompiledModel m_model;
    ov::InferRequest m_request;
    CacheGeometry m_geometry;
    std::unique_ptr<KvCache> m_cache;
    /// By kind of attention: a model whose caches are evicted from has one.
    std::vector<std::unique_ptr<AttentionInputs>> m_attention;
    std::vector<std::shared_ptr<const RegionPlan>> m_regions;
    std::vector<RotaryKind> m_rotated_in_place;
    BlockLayout m_blocks = BlockLayout::lanes;
    bool m_on_cpu;
    size_t m_vocabulary = 0;
    size_t m_logits_output = 0;
    Times m_times;
    TokenInputs m_tokens;
};

}  // namespace pagewheel
