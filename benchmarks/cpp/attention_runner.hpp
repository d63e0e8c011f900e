// A compiled graph of attention layers with its cache and inputs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "support/attention_graph.hpp"
#include "cache/kv_cache.hpp"
#include "model/cache_geometry.hpp"
#include "openvino/runtime/core.hpp"
#include "support/packed_tables.hpp"

namespace pagewheel::benchmark {

/// Ragged metadata of one inference.
struct Batch {
    TableValues tables;
    int32_t max_context = 0;

    const std::vector<int32_t>& blocks() const { return tables.layers[0].block_indices; }
    size_t tokens() const { return size_t(tables.subsequence_begins.back()); }
    size_t context_tokens() const;
    /// A sequence with `past` tokens in the cache, `fresh` new ones, in these blocks.
    void add(size_t past, size_t fresh, const std::vector<int32_t>& blocks);
};

enum class Backend { openvino, native };

struct RunnerOptions {
    AttentionShape shape;
    std::string format;           ///< of the cache
    ov::element::Type precision;  ///< what the `openvino` backend computes in
    size_t layers = 1;
    int threads = 1;
};

class AttentionRunner {
public:
    AttentionRunner(ov::Core& core, Backend backend, const RunnerOptions& options);

    size_t block_size() const { return m_geometry.block_size; }
    /// Of one block in all layers, keys and values.
    size_t block_bytes() const { return m_geometry.block_bytes; }

    /// A cache of so many blocks, each of them written by the operation.
    void fill_cache(size_t num_blocks);
    /// What infer() runs. With `rotated` every block is read as if it had been written at a lower
    /// position.
    void set_batch(const Batch& batch, bool rotated = false);
    /// Seconds.
    double infer();

private:
    void set(const std::string& name, const std::vector<int32_t>& values, const ov::Shape& shape);
    void set_activations(size_t tokens);
    /// What rotates every block by a distance of its own.
    LayerTableValues rotated(LayerTableValues layer) const;
    /// Inputs of the backend that describe the batch.
    void set_tables(const TableValues& tables, int32_t max_context);

    RunnerOptions m_options;
    Backend m_backend;
    ov::CompiledModel m_model;
    ov::InferRequest m_request;
    CacheGeometry m_geometry;
    std::unique_ptr<KvCache> m_cache;
};

/// Seconds of inferences with as many tokens and a single trivial node.
class EmptyRunner {
public:
    EmptyRunner(ov::Core& core, const RunnerOptions& options, size_t tokens);
    double infer();

private:
    ov::InferRequest m_request;
};

}  // namespace pagewheel::benchmark
