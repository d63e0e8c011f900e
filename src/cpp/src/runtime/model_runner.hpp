// A batch in, logits out.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "cache/kv_cache.hpp"
#include "model/cache_geometry.hpp"
#include "model/model_folder.hpp"
#include "openvino/runtime/core.hpp"
#include "openvino/runtime/infer_request.hpp"
#include "scheduling/batch.hpp"

namespace pagewheel {

/// Rows of logits, in the order of the batch's entries and their tokens. Valid until the next run;
/// the sampler may change them.
struct Logits {
    float* data = nullptr;
    size_t rows = 0;
    size_t vocabulary = 0;

    float* row(size_t i) const { return data + i * vocabulary; }
};

/// A model as it is compiled.
struct PreparedGraph {
    std::shared_ptr<ov::Model> model;
    /// Why MatMuls were left to the plugin, one sentence each.
    std::vector<std::string> left;
};

/// Reads the folder's model, pages its attention, gathers its logits and puts pagewheel's own ops
/// where the properties ask for them; takes the properties that are not OpenVINO's. Throws
/// std::invalid_argument for a device that is not there or a property that is refused.
PreparedGraph prepare_graph(ov::Core& core, const ModelFolder& folder, const std::string& device,
                            ov::AnyMap& properties);

/// The compiled model, its request, and tensors that are allocated once and bound by ports that are
/// resolved once.
class ModelRunner {
public:
    /// `properties` are as ContinuousBatchingPipeline takes them. Throws std::invalid_argument for
    /// a device that is not there (the message lists those that are) or a property that is refused.
    ModelRunner(const ModelFolder& folder, const std::string& device, ov::AnyMap properties);

    const CacheGeometry& geometry() const { return m_geometry; }
    size_t vocabulary() const { return m_vocabulary; }
    /// Before the first run.
    void allocate_cache(size_t num_blocks);

    /// Computes the batch's tokens, whose keys and values are in the cache afterwards.
    Logits run(const Batch& batch);

private:
    struct Input {
        size_t index = 0;
        ov::Tensor tensor;
        bool exists = false;
    };

    Input input(const char* name) const;
    /// Inputs of the native op that stay as they are while nothing is rotated or scored.
    void bind_idle_inputs();
    /// Memory for `size` elements of a one-dimensional input, kept from step to step.
    template <class T>
    T* resize(Input& input, size_t size);
    void fill(const Batch& batch);

    ov::CompiledModel m_model;
    ov::InferRequest m_request;
    CacheGeometry m_geometry;
    std::unique_ptr<KvCache> m_cache;
    bool m_on_cpu;
    size_t m_vocabulary = 0;

    Input m_input_ids, m_position_ids, m_past_lens, m_subsequence_begins, m_block_indices,
        m_block_indices_begins, m_max_context_len, m_logits_rows;
};

}  // namespace pagewheel
