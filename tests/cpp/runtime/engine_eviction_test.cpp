// The engine on a scripted model that evicts: drafts change no answer and no decision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <string>

#include "runtime/engine.hpp"

namespace pagewheel {
namespace {

using Tokens = std::vector<int64_t>;

constexpr size_t block_size = 4, words = 50, budget = 24;

/// One layer whose keys are tokens. What it answers and what it attends to depends on all that the
/// cache holds, so that a token kept, lost or left behind wrongly changes what comes.
class EvictingModel final : public Model, private BlockMemory {
public:
    size_t vocabulary() const override { return words; }
    size_t block_size() const override { return pagewheel::block_size; }
    size_t block_bytes() const override { return layout().key_block_bytes(); }
    void allocate_cache(size_t num_blocks) override {
        m_keys.resize(num_blocks * block_bytes());
        m_values.resize(num_blocks * block_bytes());
    }
    BlockMemory& cache() override { return *this; }
    std::string cache_description() const override { return "scripted"; }

    Logits run(const Batch& batch, const std::vector<size_t>& windows) override {
        for (const BlockCopy& copy : batch.copies) copy_block(copy.from, copy.to);
        m_logits.clear();
        m_scores.assign(batch.entries.size(), {});
        for (size_t e = 0; e < batch.entries.size(); ++e)
            compute(batch.entries[e], windows.empty() ? 0 : windows[e], m_scores[e]);
        for (const BatchEntry& entry : batch.entries)
            most_rows = std::max(most_rows, entry.num_sampled);
        return {m_logits.data(), m_logits.size() / words, words};
    }
    Times times() const override { return {}; }
    std::vector<LayerCache> layer_caches() const override {
        CacheLayer layer;
        layer.layout = layout();
        return {LayerCache(layer, const_cast<uint8_t*>(m_keys.data()),
                           const_cast<uint8_t*>(m_values.data()), BlockLayout::rows)};
    }
    const std::vector<const float*>& scores(size_t entry) override {
        m_pointers = {m_scores[entry].data()};
        return m_pointers;
    }
    const std::vector<RotaryKind>& rotated_in_place() const override { return m_kinds; }

    size_t most_rows = 0;  // asked of one sequence in one step

private:
    static kernels::CacheLayout layout() {
        return {kernels::CacheFormat::f32, pagewheel::block_size, 1, 2, 2};
    }
    float& key(const std::vector<BlockId>& table, size_t slot) {
        const size_t at = size_t(table.at(slot / pagewheel::block_size)) * block_bytes() +
                          slot % pagewheel::block_size * 2 * sizeof(float);
        return *reinterpret_cast<float*>(&m_keys.at(at));
    }
    void compute(const BatchEntry& entry, size_t window, std::vector<float>& scores) {
        const Sequence& sequence = *entry.sequence;
        const EvictionState& state = *sequence.eviction;
        const auto table =
            state.num_evicted > 0 ? state.layers[0].table(sequence.blocks) : sequence.blocks;
        const size_t first = sequence.num_slots(), end = first + entry.num_tokens;
        for (size_t i = 0; i < entry.num_tokens; ++i)
            key(table, first + i) = float(sequence.tokens[sequence.num_cached + i]);
        scores.assign(end, 0.0f);
        for (size_t q = first; q < end; ++q) {
            size_t hash = 1;
            for (size_t s = 0; s <= q; ++s) {
                const auto token = size_t(key(table, s));
                hash = hash * 31 + token;
                if (q + window >= end) scores[s] += float((token * 7 + q) % 13);
            }
            if (q + entry.num_logits < end) continue;
            std::mt19937 random{unsigned(hash)};
            for (size_t i = 0; i < words; ++i) m_logits.push_back(float(random() % 1000));
        }
    }

    void copy_block(BlockId from, BlockId to) override {
        std::memcpy(&m_keys[size_t(to) * block_bytes()], &m_keys[size_t(from) * block_bytes()],
                    block_bytes());
    }
    void read_block(BlockId, char*) const override { throw std::logic_error("not asked"); }
    void write_block(BlockId, const char*) override { throw std::logic_error("not asked"); }
    void give_back(const BlockRange&) override {}

    std::vector<uint8_t> m_keys, m_values;
    std::vector<float> m_logits;
    std::vector<std::vector<float>> m_scores;
    std::vector<const float*> m_pointers;
    std::vector<RotaryKind> m_kinds;
};

/// Says what an engine without it has said, and something else now and then.
class Repeater final : public Drafter {
public:
    explicit Repeater(std::vector<Tokens> said) : m_said(std::move(said)) {}

    void propose(SequenceState& sequence, size_t most, std::vector<Draft>& drafts) override {
        const Tokens& tokens = sequence.tokens;
        for (const Tokens& all : m_said) {
            if (all.size() <= tokens.size() ||
                !std::equal(tokens.begin(), tokens.end(), all.begin()))
                continue;
            for (size_t i = tokens.size();
                 i < all.size() && drafts.size() < std::min<size_t>(most, 5); ++i)
                drafts.push_back({m_random() % 10 == 0 ? 0 : all[i]});
            return;
        }
    }

private:
    std::vector<Tokens> m_said;
    std::mt19937 m_random{3};
};

struct Answers {
    std::vector<Tokens> all;  // with the prompts
    size_t most_rows;
};

Answers run(const std::string& policy, bool in_chunks, std::unique_ptr<Drafter> drafter) {
    SchedulerConfig config;
    config.speculation = "off";
    config.num_kv_blocks = 30;  // too few for all at once
    config.max_num_batched_tokens = 16;
    config.use_cache_eviction = true;
    config.cache_eviction_config = CacheEvictionConfig(4, 8, budget, AggregationMode::SUM);
    config.cache_eviction_config.policy = policy;
    config.cache_eviction_config.evict_during_prefill = in_chunks;
    auto model = std::make_unique<EvictingModel>();
    EvictingModel& scripted = *model;
    const bool drafter_is_given = drafter != nullptr;
    EngineParts parts;
    parts.model = std::move(model);
    parts.drafter = std::move(drafter);
    const auto numbers = [](const Tokens&) { return std::string(); };
    parts.decoders = {numbers, numbers};
    Engine engine(std::move(parts), config);
    std::vector<GenerationHandle> handles;
    std::vector<Tokens> prompts;
    for (int64_t i = 0; i < 6; ++i) {
        GenerationConfig generation;
        generation.max_new_tokens = 80;
        generation.num_assistant_tokens = drafter_is_given ? 5 : 0;
        prompts.push_back(Tokens(size_t(3 + 9 * i), i));
        handles.emplace_back(engine.submit(std::nullopt, prompts.back(), generation));
    }
    while (engine.has_work()) engine.step();
    Answers result{prompts, scripted.most_rows};
    for (size_t i = 0; i < handles.size(); ++i) {
        const Tokens tokens = handles[i].outputs_so_far().at(0).generated_ids;
        EXPECT_EQ(tokens.size(), 80u);
        result.all[i].insert(result.all[i].end(), tokens.begin(), tokens.end());
    }
    EXPECT_EQ(engine.statistics().num_used_blocks, 0u);
    return result;
}

TEST(EngineEviction, AnswersAndDecisionsAreTheSameWithDrafts) {
    for (const bool in_chunks : {false, true})
        for (const char* policy : {"streaming", "tova", "snapkv", "sum", "norm_sum"}) {
            const Answers expected = run(policy, in_chunks, nullptr);
            EXPECT_EQ(expected.most_rows, 1u);
            const Answers drafted =
                run(policy, in_chunks, std::make_unique<Repeater>(expected.all));
            EXPECT_EQ(drafted.all, expected.all) << policy;
            // Where every query is observed there are no drafts.
            const bool observes_all = std::string(policy).find("sum") != std::string::npos;
            EXPECT_EQ(drafted.most_rows > 1, !observes_all) << policy;
        }
}

SchedulerConfig evicting(size_t num_kv_blocks) {
    SchedulerConfig config;
    config.num_kv_blocks = num_kv_blocks;
    config.use_cache_eviction = true;
    config.cache_eviction_config = CacheEvictionConfig(4, 8, budget, AggregationMode::SUM);
    return config;
}

EngineParts scripted_parts() {
    EngineParts parts;
    parts.model = std::make_unique<EvictingModel>();
    const auto numbers = [](const Tokens&) { return std::string(); };
    parts.decoders = {numbers, numbers};
    return parts;
}

TEST(EngineEviction, EvictedTokensAreCounted) {
    Engine engine(scripted_parts(), evicting(30));
    EXPECT_EQ(engine.statistics().block_size, block_size);
    GenerationConfig generation;
    generation.max_new_tokens = 30;
    generation.ignore_eos = true;
    const GenerationHandle handle(engine.submit(std::nullopt, Tokens(10, 1), generation));
    while (engine.has_work()) engine.step();
    // 39 tokens are computed, of which the budget of 24 holds as many.
    EXPECT_EQ(engine.statistics().num_evicted_tokens, 15u);
}

TEST(EngineEviction, ARequestThatWantsNoneIsAnsweredAsWithout) {
    constexpr size_t context = 60, prompt = 10;
    const auto answer = [&](bool evicts, bool is_wanted) {
        SchedulerConfig config = evicting(30);
        config.use_cache_eviction = evicts;
        EngineParts parts = scripted_parts();
        parts.context_length = context;
        Engine engine(std::move(parts), config);
        GenerationConfig generation;
        generation.max_new_tokens = 100;
        generation.ignore_eos = true;
        generation.cache_eviction = is_wanted;
        const GenerationHandle handle(engine.submit(std::nullopt, Tokens(prompt, 1), generation));
        while (engine.has_work()) engine.step();
        EXPECT_EQ(engine.statistics().num_evicted_tokens > 0, evicts && is_wanted);
        return handle.outputs_so_far().at(0).generated_ids;
    };
    const Tokens kept = answer(false, true);
    EXPECT_EQ(kept.size(), context - prompt);
    EXPECT_EQ(answer(true, false), kept);
    EXPECT_EQ(answer(true, true).size(), 100u);
}

/// Two samples of one prompt, which evicts, with such stop tokens.
std::vector<Tokens> two_samples(uint64_t seed, const std::set<int64_t>& stops) {
    Engine engine(scripted_parts(), evicting(40));
    GenerationConfig generation;
    generation.max_new_tokens = 20;
    generation.do_sample = true;
    generation.temperature = 1000;  // the scripted logits are thousands
    generation.rng_seed = seed;
    generation.num_return_sequences = 2;
    generation.stop_token_ids = stops;
    const GenerationHandle handle(engine.submit(std::nullopt, Tokens(40, 1), generation));
    while (engine.has_work()) engine.step();
    EXPECT_EQ(engine.statistics().num_used_blocks, 0u);
    const auto outputs = handle.outputs_so_far();
    return {outputs.at(0).generated_ids, outputs.at(1).generated_ids};
}

TEST(EngineEviction, ASampleIsTheSameWhereItsSiblingEndsAtItsFirstToken) {
    size_t num_compared = 0;
    for (uint64_t seed = 0; seed < 20; ++seed) {
        const std::vector<Tokens> free = two_samples(seed, {});
        const int64_t stop = free[0].front();
        const std::vector<Tokens> stopped = two_samples(seed, {stop});
        EXPECT_EQ(stopped[0], Tokens{stop});
        const auto end = std::find(free[1].begin(), free[1].end(), stop);
        const Tokens expected(free[1].begin(), end == free[1].end() ? end : end + 1);
        EXPECT_EQ(stopped[1], expected) << "seed " << seed;
        num_compared += expected.size();
    }
    EXPECT_GT(num_compared, 200u);
}

/// Fails when it is asked the second time.
class FailingPolicy final : public EvictionPolicy {
public:
    void drop(const EvictionView& view, size_t count, std::vector<size_t>& dropped) override {
        if (++m_num_asked == 2) throw std::runtime_error("no idea");
        for (size_t i = 0; i < count; ++i) dropped.push_back(view.first_unit + i);
    }

private:
    size_t m_num_asked = 0;
};

TEST(EngineEviction, APolicyThatFailsEndsItsRequestAlone) {
    SchedulerConfig config = evicting(30);
    config.cache_eviction_config.custom_policy = std::make_shared<FailingPolicy>();
    Engine engine(scripted_parts(), config);
    GenerationConfig generation;
    generation.max_new_tokens = 60;
    std::vector<GenerationHandle> handles;
    for (int64_t i = 0; i < 2; ++i)
        handles.emplace_back(engine.submit(std::nullopt, Tokens(10, i), generation));
    while (engine.has_work()) EXPECT_NO_THROW(engine.step());
    size_t num_failed = 0;
    for (const GenerationHandle& handle : handles) {
        if (handle.get_status() == GenerationStatus::FINISHED) continue;
        ++num_failed;
        try {
            handle.outputs_so_far();
            FAIL() << "the failure is not told";
        } catch (const std::runtime_error& error) {
            EXPECT_STREQ(error.what(), "the eviction policy failed: no idea");
        }
    }
    EXPECT_EQ(num_failed, 1u);
    EXPECT_EQ(engine.statistics().num_used_blocks, 0u);
}

}  // namespace
}  // namespace pagewheel
