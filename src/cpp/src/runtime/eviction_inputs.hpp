// What the attention of each layer is told about evicted caches, and the scores it gives back.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "check.hpp"
#include "graph/native_attention.hpp"
#include "openvino/runtime/infer_request.hpp"
#include "scheduling/batch.hpp"

namespace pagewheel {

/// Of a model whose caches are evicted from; its attention says how.
class EvictionInputs {
public:
    /// Throws std::invalid_argument if rotary.dims exceeds the head size.
    explicit EvictionInputs(std::vector<CacheLayer> layers) : m_layers(std::move(layers)) {
        for (const CacheLayer& layer : m_layers)
            check_argument(layer.rotary.dims <= layer.layout.key_size,
                           "the model folder describes ", layer.rotary.dims,
                           " rotary dimensions of heads that have ", layer.layout.key_size);
    }
    virtual ~EvictionInputs() = default;
    EvictionInputs(const EvictionInputs&) = delete;
    EvictionInputs& operator=(const EvictionInputs&) = delete;

    /// In the order of their caches.
    const std::vector<CacheLayer>& layers() const { return m_layers; }
    /// `windows` [batch entries]: last new tokens whose attention is wanted, 0: none.
    virtual void fill(ov::InferRequest& request, const Batch& batch,
                      const std::vector<size_t>& windows) = 0;
    /// After the inference, by layer: f32 [tokens held after the step] of a batch entry with a
    /// window. Valid until the next fill().
    virtual const std::vector<const float*>& scores(ov::InferRequest& request, size_t entry) = 0;

protected:
    std::vector<CacheLayer> m_layers;
};

}  // namespace pagewheel
