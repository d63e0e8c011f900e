// Evicted caches, as the plugin's attention is told about them.
#pragma once

#include <string>
#include <vector>

#include "graph/stock_attention.hpp"
#include "model/cache_geometry.hpp"
#include "model/rotary.hpp"
#include "runtime/eviction_inputs.hpp"
#include "runtime/input_tensor.hpp"

namespace pagewheel {

/// A block table and scores for each layer. Keys are never turned at read: whoever evicts turns
/// them where they lie.
class StockEvictionInputs final : public EvictionInputs {
public:
    /// Throws std::invalid_argument for a cache whose blocks are not plain rows of f32, bf16 or
    /// f16.
    StockEvictionInputs(const ov::CompiledModel& model,
                        const std::vector<StockAttentionLayer>& attention,
                        const CacheGeometry& geometry, const RotaryDescription& rotary);

    void fill(ov::InferRequest& request, const Batch& batch,
              const std::vector<size_t>& windows) override;
    const std::vector<const float*>& scores(ov::InferRequest& request, size_t entry) override;

private:
    struct Table {
        size_t owner;  ///< index of layers() whose cache it leads to
        InputTensor input;
    };
    std::vector<Table> m_tables;
    InputTensor m_windows;
    std::vector<size_t> m_outputs;         // with the scores of layers()
    std::vector<size_t> m_score_begins;    // by batch entry
    std::vector<const float*> m_pointers;  // what scores() returns
};

}  // namespace pagewheel
