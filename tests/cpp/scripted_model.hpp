// A model for tests of the engine: what it answers is written down, and nothing is computed.
#pragma once

#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "runtime/model.hpp"

namespace pagewheel {

/// After token t comes next(t); by default t + 1, and 0 after the last.
class ScriptedModel final : public Model, private BlockMemory {
public:
    static constexpr size_t words = 100, tokens_per_block = 4, bytes_per_block = size_t(1) << 30;

    std::function<int64_t(int64_t)> next = [](int64_t token) {
        return (token + 1) % int64_t(words);
    };
    /// Called first in each run, and may throw.
    std::function<void(const Batch&)> before_run = [](const Batch&) {};
    /// What give_back() does, outside of any run.
    std::function<void()> when_memory_is_unused = [] {};

    size_t vocabulary() const override { return words; }
    size_t block_size() const override { return tokens_per_block; }
    size_t block_bytes() const override { return bytes_per_block; }
    void allocate_cache(size_t) override {}
    BlockMemory& cache() override { return *this; }
    std::string cache_description() const override { return "scripted"; }

    Logits run(const Batch& batch, const std::vector<size_t>&) override {
        before_run(batch);
        m_logits.clear();
        for (const BatchEntry& entry : batch.entries)
            for (size_t i = entry.num_tokens - entry.num_logits; i < entry.num_tokens; ++i) {
                const size_t row = m_logits.size();
                m_logits.resize(row + words, 0.0f);
                const int64_t token = entry.sequence->tokens[entry.sequence->num_cached + i];
                m_logits[row + size_t(next(token))] = 10.0f;
            }
        return {m_logits.data(), m_logits.size() / words, words};
    }
    Times times() const override { return {}; }

    std::vector<LayerCache> layer_caches() const override { return {}; }
    const std::vector<const float*>& scores(size_t) override { return m_scores; }
    const std::vector<RotaryKind>& rotated_in_place() const override { return m_kinds; }

private:
    void copy_block(BlockId, BlockId) override {}
    void read_block(BlockId, char*) const override { throw std::logic_error("nothing is there"); }
    void write_block(BlockId, const char*) override { throw std::logic_error("nothing is kept"); }
    void give_back(const BlockRange&) override { when_memory_is_unused(); }

    std::vector<float> m_logits;
    std::vector<const float*> m_scores;
    std::vector<RotaryKind> m_kinds;
};

}  // namespace pagewheel
