// The evictor on a cache in memory: what is held, where it lies and how far it must rotate.
#include "eviction/evictor.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <tuple>

#include "eviction/layer_cache.hpp"
#include "kernels/paged_attention.hpp"
#include "pagewheel/errors.hpp"
#include "support/kernel_access.hpp"
#include "support/packed_tables.hpp"

namespace pagewheel {
namespace {

using kernels::CacheFormat;

constexpr size_t block_size = 16, head_size = 8, kv_heads = 2, pool = 64;

class RandomPolicy final : public EvictionPolicy {
public:
    void drop(const EvictionView& view, size_t count, std::vector<size_t>& dropped) override {
        std::vector<size_t> units(view.last_unit - view.first_unit);
        std::iota(units.begin(), units.end(), view.first_unit);
        std::shuffle(units.begin(), units.end(), m_random);
        units.resize(std::min(count, units.size()));
        dropped = units;
    }

private:
    std::mt19937 m_random{7};
};

/// One sequence whose token n of layer l has a key and value made of n and l.
class World {
public:
    World(CacheFormat format, size_t num_layers, CacheEvictionConfig config,
          std::vector<size_t> windows = {}, const std::vector<RotaryKind>& rotated_in_place = {},
          size_t context = 0)
        : m_layout{format, block_size, kv_heads, head_size, head_size},
          m_keys(num_layers, std::vector<uint8_t>(pool * m_layout.key_block_bytes())),
          m_values(num_layers, std::vector<uint8_t>(pool * m_layout.value_block_bytes())) {
        std::vector<LayerCache> layers;
        for (size_t l = 0; l < num_layers; ++l) {
            CacheLayer layer;
            layer.layout = m_layout;
            layer.layer = l;
            layer.sliding_window = l < windows.size() ? windows[l] : 0;
            if (!rotated_in_place.empty()) layer.rotary = {{head_size, false, {}}, 0};
            layers.emplace_back(layer, m_keys[l].data(), m_values[l].data(),
                                rotated_in_place.empty() ? BlockLayout::lanes : BlockLayout::rows);
        }
        evictor = std::make_unique<Evictor>(config, std::move(layers), block_size, context,
                                            rotated_in_place);
        for (size_t b = pool; b > 0; --b) m_free.push_back(BlockId(b - 1));
        state.may_evict = true;
    }

    size_t held() const { return processed - state.num_evicted; }
    size_t num_layers() const { return m_keys.size(); }

    static std::vector<float> content(size_t layer, size_t token, int salt) {
        std::vector<float> x(kv_heads * head_size);
        std::mt19937 random(unsigned(token * 100 + layer * 10 + size_t(salt)));
        for (float& v : x) v = float(int(random() % 200) - 100) / 16;
        return x;
    }

    /// Computes the next `count` tokens: their keys and values go where the layers' tables say.
    void append(size_t count) {
        while (blocks.size() * block_size < held() + count) {
            blocks.push_back(m_free.back());
            m_free.pop_back();
        }
        for (size_t l = 0; l < num_layers(); ++l) {
            std::vector<float> key, value;
            for (size_t t = processed; t < processed + count; ++t) {
                const auto k = content(l, t, 1), v = content(l, t, 2);
                key.insert(key.end(), k.begin(), k.end());
                value.insert(value.end(), v.begin(), v.end());
            }
            const auto table = state.layers.empty() ? blocks : state.layers[l].table(blocks);
            TableValues values;
            values.add(held(), count, table);
            std::vector<int32_t> words(values.num_words());
            values.pack(words.data());
            kernels::AttentionBatch batch;
            batch.key = key.data();
            batch.value = value.data();
            batch.key_blocks = m_keys[l].data();
            batch.value_blocks = m_values[l].data();
            batch.tables = kernels::BatchTables(words.data(), words.size(), l);
            kernels::write_keys_values(m_layout, batch, Isa::scalar);
        }
        for (size_t i = 0; i < count; ++i)
            written_at.push_back(int64_t(processed + i - state.shift));
        processed += count;
    }

    void evict(size_t due, bool in_chunks = false) {
        const EvictionDecision decision =
            evictor->decide(state, blocks, held(), due, false,
                            in_chunks ? evictor->chunk_end() : evictor->decode_end(),
                            [](size_t) { return size_t(1); });
        latest = decision;
        num_closed += decision.closes_positions;
        const auto keys = m_keys, values = m_values;
        const auto before = state.layers;
        evictor->apply(decision, state, blocks);
        for (size_t l = 0; l < before.size(); ++l) check_positions(before[l], state.layers[l]);
        for (size_t e = 0; e < blocks.size(); ++e)
            if (!std::binary_search(decision.written.begin(), decision.written.end(), e)) {
                EXPECT_TRUE(same_block(blocks[e], m_layout.key_block_bytes(), keys, m_keys)) << e;
                EXPECT_TRUE(same_block(blocks[e], m_layout.value_block_bytes(), values, m_values))
                    << e;
            }
        for (size_t i = decision.released.size(); i > 0; --i) {
            const size_t entry = decision.released[i - 1];
            m_free.push_back(blocks[entry]);
            blocks.erase(blocks.begin() + ptrdiff_t(entry));
        }
    }

    /// Tokens that stay are read where they were, or at their slots' numbers.
    void check_positions(const SlotTable& before, const SlotTable& after) const {
        for (size_t s = 0; s < after.position.size(); ++s) {
            const auto at =
                std::find(before.position.begin(), before.position.end(), after.position[s]);
            const int64_t kept = before.read_at[size_t(at - before.position.begin())];
            ASSERT_EQ(after.read_at[s], latest.closes_positions ? int64_t(s) : kept);
        }
    }

    /// Every layer holds, in order and bit by bit, the tokens that its slot table names; each
    /// rotates back from where it was written to where it is read.
    void check() const {
        for (size_t l = 0; l < state.layers.size(); ++l) {
            const SlotTable& slots = state.layers[l];
            const auto table = slots.table(blocks);
            auto sorted = table;
            std::sort(sorted.begin(), sorted.end());
            ASSERT_EQ(std::unique(sorted.begin(), sorted.end()), sorted.end());
            ASSERT_TRUE(std::is_sorted(slots.position.begin(), slots.position.end()));
            for (size_t s = 0; s < slots.position.size(); ++s) {
                const auto token = size_t(slots.position[s]);
                std::vector<float> key(kv_heads * head_size);
                evictor->layers()[l].read_keys(table, s, s + 1, key.data());
                std::vector<float> value(kv_heads * head_size);
                for (size_t h = 0; h < kv_heads; ++h)
                    kernels::read_value(m_layout,
                                        m_values[l].data() + size_t(table[s / block_size]) *
                                                                 m_layout.value_block_bytes(),
                                        s % block_size, h, value.data() + h * head_size);
                const auto k = content(l, token, 1), v = content(l, token, 2);
                const float error = m_layout.format == CacheFormat::f32  ? 0
                                    : m_layout.format == CacheFormat::u4 ? 0.6f
                                                                         : 0.06f;
                for (size_t d = 0; d < k.size(); ++d) {
                    ASSERT_NEAR(key[d], k[d], error) << "layer " << l << " slot " << s;
                    ASSERT_NEAR(value[d], v[d], error) << "layer " << l << " slot " << s;
                }
                const int64_t rotated = written_at[token] - slots.read_at[s];
                ASSERT_EQ(slots.delta[s], rotated) << "layer " << l << " slot " << s;
                ASSERT_EQ(described(slots, s), rotated) << "layer " << l << " slot " << s;
            }
        }
    }

    static bool same_block(BlockId block, size_t bytes,
                           const std::vector<std::vector<uint8_t>>& before,
                           const std::vector<std::vector<uint8_t>>& now) {
        for (size_t l = 0; l < before.size(); ++l)
            if (!std::equal(before[l].begin() + ptrdiff_t(size_t(block) * bytes),
                            before[l].begin() + ptrdiff_t((size_t(block) + 1) * bytes),
                            now[l].begin() + ptrdiff_t(size_t(block) * bytes)))
                return false;
        return true;
    }

    /// The delta of a slot as the attention op is told.
    static int64_t described(const SlotTable& slots, size_t slot) {
        const auto at =
            std::find(slots.rotated.begin(), slots.rotated.end(), int32_t(slot / block_size));
        if (at == slots.rotated.end()) return 0;
        const auto row = size_t(at - slots.rotated.begin());
        return slots.per_token ? slots.deltas[row * block_size + slot % block_size]
                               : slots.deltas[row];
    }

    std::unique_ptr<Evictor> evictor;
    EvictionState state;
    std::vector<BlockId> blocks;
    std::vector<int64_t> written_at;  // by token
    size_t processed = 0, num_closed = 0;
    EvictionDecision latest;

private:
    kernels::CacheLayout m_layout;
    std::vector<std::vector<uint8_t>> m_keys, m_values;
    std::vector<BlockId> m_free;
};

CacheEvictionConfig config(bool rotation, EvictionGranularity granularity) {
    CacheEvictionConfig config(16, 16, 96, AggregationMode::SUM, rotation);
    config.granularity = granularity;
    config.custom_policy = std::make_shared<RandomPolicy>();
    return config;
}

TEST(Evictor, HoldsWhatItsSlotTableSaysAfterAnyEvictions) {
    for (CacheFormat format :
         {CacheFormat::f32, CacheFormat::bf16, CacheFormat::f16, CacheFormat::u8, CacheFormat::u4})
        for (const auto granularity : {EvictionGranularity::BLOCK, EvictionGranularity::TOKEN})
            for (const bool rotation : {false, true}) {
                SCOPED_TRACE(testing::Message() << kernels::cache_format_name(format) << " token "
                                                << int(granularity) << " rotation " << rotation);
                World world(format, 3, config(rotation, granularity), {0, 0, 40});
                std::mt19937 random(3);
                world.append(150 + random() % 30);  // a prompt past the budget, no multiple of 16
                for (int step = 0; step < 150; ++step) {
                    if (const size_t due = world.evictor->due(world.held())) {
                        world.evict(due);
                        world.check();
                        if (testing::Test::HasFatalFailure()) return;
                    }
                    ASSERT_LT(world.held(), 96u);
                    ASSERT_LE(world.blocks.size(), 6u);
                    world.append(1);
                }
            }
}

/// A prompt and what follows it, evicted as the step loop does.
void run_long(World& world, bool during_prefill, size_t prompt, size_t generated) {
    const Evictor& evictor = *world.evictor;
    while (world.processed < prompt + generated) {
        const size_t room = during_prefill ? evictor.chunk_end() - world.held() : prompt;
        const size_t left = prompt - std::min(prompt, world.processed);
        world.append(left > 0 ? std::min(left, room) : 1);
        const bool in_prompt = world.processed < prompt;
        const size_t due = evictor.due(world.held());
        if (due == 0 || (in_prompt && world.held() < evictor.chunk_end())) continue;
        world.evict(due, in_prompt);
        world.check();
        ASSERT_LT(world.held(), evictor.config().get_max_cache_size());
    }
}

/// What remains a config's error, by the numbers.
bool is_allowed(const CacheEvictionConfig& config) {
    const bool whole = config.resolved_granularity() == EvictionGranularity::BLOCK;
    for (size_t size :
         {config.get_start_size(), config.get_recent_size(), config.get_max_cache_size()})
        if (whole && size % block_size != 0) return false;
    return config.get_evictable_size() >= block_size;
}

/// Ends of areas at, before and behind those of blocks.
const std::vector<size_t> awkward_sizes = {0, 1, 15, 16, 17, 40};

TEST(EvictionConfig, WhatIsAcceptedRunsALongRequestAndWhatIsNotIsNamed) {
    size_t accepted = 0, refused = 0;
    const auto run = [&](const CacheEvictionConfig& config) {
        const size_t largest = config.get_max_cache_size();
        SCOPED_TRACE(config.to_string());
        try {
            config.validate(block_size);
        } catch (const InvalidArgument& error) {
            ++refused;
            EXPECT_FALSE(is_allowed(config)) << error.what();
            const std::string message = error.what();
            EXPECT_NE(message.find("_size is "), std::string::npos) << message;
            EXPECT_NE(message.find("allowed: "), std::string::npos) << message;
            return;
        }
        ++accepted;
        EXPECT_TRUE(is_allowed(config));
        World world(CacheFormat::f32, 2, config, {0, largest / 2});
        ASSERT_NO_THROW(run_long(world, config.evict_during_prefill, largest + 37, 40));
    };
    for (size_t start : awkward_sizes)
        for (size_t recent : awkward_sizes)
            for (size_t middle : {1u, 15u, 16u, 17u, 31u, 32u, 48u})
                for (const auto granularity :
                     {EvictionGranularity::BLOCK, EvictionGranularity::TOKEN})
                    for (const bool during_prefill : {false, true}) {
                        CacheEvictionConfig config(start, recent, start + recent + middle,
                                                   AggregationMode::SUM, true);
                        config.granularity = granularity;
                        config.custom_policy = std::make_shared<RandomPolicy>();
                        config.evict_during_prefill = during_prefill;
                        run(config);
                        if (testing::Test::HasFailure()) return;
                    }
    EXPECT_GT(accepted, 300u);
    EXPECT_GT(refused, 300u);
}

TEST(EvictionConfig, EveryPolicyRunsALongRequestInTheSmallestBudget) {
    for (const EvictionPolicyKind& policy : eviction_policies())
        for (const auto granularity : {EvictionGranularity::BLOCK, EvictionGranularity::TOKEN})
            for (const bool during_prefill : {false, true}) {
                const bool whole = granularity == EvictionGranularity::BLOCK;
                if (!whole && policy.name == std::string("kvcrush")) continue;
                const size_t start = whole ? 16 : 5, recent = whole ? 0 : 1;
                CacheEvictionConfig config(start, recent, start + recent + block_size,
                                           AggregationMode::NORM_SUM, true);
                config.policy = policy.name;
                config.kvcrush_config = KVCrushConfig(1);
                config.granularity = granularity;
                config.evict_during_prefill = during_prefill;
                SCOPED_TRACE(config.to_string());
                World world(CacheFormat::u8, 2, config);
                ASSERT_NO_THROW(run_long(world, during_prefill, 100, 50));
                if (testing::Test::HasFailure()) return;
            }
}

/// Drops neighbours, from anywhere on: layers then differ in the last block that loses some.
class RandomStretch final : public EvictionPolicy {
public:
    void drop(const EvictionView& view, size_t count, std::vector<size_t>& dropped) override {
        const size_t places = view.last_unit - view.first_unit - count + 1;
        dropped.resize(count);
        std::iota(dropped.begin(), dropped.end(), view.first_unit + m_random() % places);
    }

private:
    std::mt19937 m_random{11};
};

/// Whoever else holds a block that the decision does not name as written reads what was there.
TEST(Evictor, WritesNoBlockThatItsDecisionDoesNotNameWhereKeysRotateInPlace) {
    for (const auto granularity : {EvictionGranularity::BLOCK, EvictionGranularity::TOKEN}) {
        auto stretches = config(true, granularity);
        stretches.custom_policy = std::make_shared<RandomStretch>();
        for (const size_t context : {0, 200}) {
            World world(CacheFormat::f32, 5, stretches, {},
                        {{head_size, false, {1.0, 0.5, 0.25, 0.125}}}, context);
            world.append(170);
            for (int step = 0; step < 100; ++step) {
                if (const size_t due = world.evictor->due(world.held())) world.evict(due);
                world.append(1);
            }
            EXPECT_EQ(world.num_closed < 3, context == 200);
        }
    }
}

/// Positions reach the limit seldom, and none is written at or beyond it.
TEST(Evictor, KeysStayAtTheirPositionsUntilTheLimit) {
    for (const auto granularity : {EvictionGranularity::BLOCK, EvictionGranularity::TOKEN})
        for (const size_t limit : {0, 250, 300, 1000})
            for (const bool during_prefill : {false, true}) {
                CacheEvictionConfig limited = config(true, granularity);
                limited.position_limit = limit;
                limited.evict_during_prefill = during_prefill;
                World world(CacheFormat::f32, 3, limited, {0, 40, 100}, {}, 300);
                SCOPED_TRACE(limited.to_string());
                const size_t prompt = during_prefill ? 900 : 170;
                run_long(world, during_prefill, prompt, 800);
                if (testing::Test::HasFatalFailure()) return;
                const auto largest =
                    *std::max_element(world.written_at.begin(), world.written_at.end());
                const int64_t most = limit == 250 ? 250 : 300;
                EXPECT_LT(largest, most);
                EXPECT_GE(largest, most - 50);
                EXPECT_GE(world.num_closed, 3u);
                EXPECT_LE(world.num_closed, during_prefill ? 16u : 6u);
            }
}

/// A layer whose window is larger than the budget asks its policy for what is still seen.
TEST(Evictor, WhatAWindowHasPassedGoesBeforeTheRest) {
    World world(CacheFormat::f32, 2, config(true, EvictionGranularity::TOKEN), {0, 100});
    world.append(180);
    world.evict(world.evictor->due(180));
    const std::vector<size_t>& dropped = world.latest.dropped[1];
    for (size_t slot = 0; slot <= 180 - 100; ++slot) EXPECT_EQ(dropped[slot], slot);
    EXPECT_EQ(dropped.size(), world.latest.dropped[0].size());
    for (size_t i = 81; i < dropped.size(); ++i) EXPECT_LT(dropped[i], 180u - 16);

    // Whole blocks, of the first 81 tokens five; once positions have closed up all that is held is
    // within the window.
    World blocks(CacheFormat::f32, 2, config(true, EvictionGranularity::BLOCK), {0, 100});
    blocks.append(180);
    blocks.evict(blocks.evictor->due(180));
    for (size_t slot = 0; slot < 80; ++slot) EXPECT_EQ(blocks.latest.dropped[1][slot], slot);
    blocks.append(blocks.evictor->config().get_max_cache_size() - blocks.held());
    blocks.evict(blocks.evictor->due(blocks.held()));
    EXPECT_GE(blocks.latest.dropped[1].front(), 16u);
}

TEST(Evictor, PrefillChunksEndWithinTheContext) {
    for (const size_t budget : {96, 103})
        for (size_t context = budget + block_size; context < 400; ++context) {
            CacheEvictionConfig sizes(16, 16, budget, AggregationMode::SUM, true);
            const World world(CacheFormat::f32, 1, sizes, {}, {}, context);
            EXPECT_GE(world.evictor->chunk_end(), budget);
            if (context / block_size > blocks_for(budget, block_size)) {
                EXPECT_LE(world.evictor->chunk_end(), context);
            }
        }
}

TEST(Evictor, EvictsWhenTheBudgetIsReachedAndNotBefore) {
    World world(CacheFormat::f32, 1, config(true, EvictionGranularity::BLOCK));
    const std::map<size_t, size_t> due = {{0, 0},    {95, 0},   {96, 16},  {97, 16},
                                          {111, 16}, {112, 32}, {300, 208}};
    for (const auto& [held, tokens] : due) EXPECT_EQ(world.evictor->due(held), tokens) << held;
}

TEST(Evictor, SingleTokensLeaveRoomForASixteenthOfTheBudget) {
    World world(CacheFormat::f32, 1, config(true, EvictionGranularity::TOKEN));
    const std::map<size_t, size_t> due = {{95, 0}, {96, 6}, {97, 7}, {300, 210}};
    for (const auto& [held, tokens] : due) EXPECT_EQ(world.evictor->due(held), tokens) << held;
    CacheEvictionConfig large(16, 16, 672, AggregationMode::SUM, true);
    World other(CacheFormat::f32, 1, large);
    EXPECT_EQ(other.evictor->due(672), block_size);  // no more than a block
}

TEST(Evictor, StartAndRecentTokensAndAPartlyFilledBlockStay) {
    for (const auto granularity : {EvictionGranularity::BLOCK, EvictionGranularity::TOKEN})
        for (size_t prompt = 96; prompt < 160; prompt += 7) {
            World world(CacheFormat::f32, 2, config(true, granularity));
            world.append(prompt);
            world.evict(world.evictor->due(prompt));
            for (const auto& dropped : world.latest.dropped)
                for (size_t slot : dropped) {
                    EXPECT_GE(slot, 16u);
                    EXPECT_LT(slot, std::min(prompt - 16, prompt / 16 * 16));
                }
        }
}

TEST(Evictor, ASlidingLayerLosesWhatItsWindowHasPassed) {
    World world(CacheFormat::f32, 2, config(true, EvictionGranularity::TOKEN), {0, 40});
    world.append(130);
    world.evict(world.evictor->due(130));
    std::vector<size_t> oldest(world.state.num_evicted);
    std::iota(oldest.begin(), oldest.end(), size_t(0));
    EXPECT_EQ(world.latest.dropped[1], oldest);
    EXPECT_NE(world.latest.dropped[0], oldest);
}

TEST(Evictor, ScoresAddUpWithTheirLifetimes) {
    CacheEvictionConfig plain(16, 16, 96, AggregationMode::NORM_SUM);
    World world(CacheFormat::f32, 1, plain);
    world.append(3);
    const std::vector<float> first = {1, 2, 3}, second = {0.5f, 0, 1, 4};
    world.evictor->observe(world.state, 3, 2, {first.data()});
    world.append(1);
    world.evictor->observe(world.state, 4, 1, {second.data()});
    EXPECT_EQ(world.state.layers[0].score, std::vector<float>({1.5f, 2, 4, 4}));
    EXPECT_EQ(world.state.layers[0].lifetimes(), std::vector<int32_t>({3, 3, 2, 1}));
    world.append(116);
    world.evict(world.evictor->due(120));  // what goes takes its scores along, the rest keeps them
    EXPECT_EQ(world.state.layers[0].score[2], 4);
    EXPECT_EQ(world.state.layers[0].score.size(), world.held());
}

TEST(Evictor, LifetimesMoveWithTheirTokensOrAreForgotten) {
    for (const bool accumulates : {true, false}) {
        CacheEvictionConfig config(16, 16, 96, AggregationMode::NORM_SUM);
        if (!accumulates) config.policy = "snapkv";
        World world(CacheFormat::f32, 1, config);
        world.append(120);
        const std::vector<float> scores(120, 1.0f);
        world.evictor->observe(world.state, 120, 100, {scores.data()});
        world.evict(world.evictor->due(120));
        const std::vector<int32_t> lifetimes = world.state.layers[0].lifetimes();
        ASSERT_EQ(lifetimes.size(), world.held());
        for (size_t i = 1; i <= 16; ++i)  // the recent ones stay
            EXPECT_EQ(lifetimes[lifetimes.size() - i], accumulates ? int32_t(i) : 0);
        EXPECT_EQ(lifetimes[0], accumulates ? 100 : 0);
    }
}

TEST(Evictor, ScoresArePooledOverNeighboursIfSoConfigured) {
    class Watching final : public EvictionPolicy {
    public:
        ObservedQueries observed() const override { return {1, 1, true}; }
        void drop(const EvictionView& view, size_t count, std::vector<size_t>& dropped) override {
            seen.assign(view.scores, view.scores + view.num_tokens);
            for (size_t i = 0; i < count; ++i) dropped.push_back(view.first_unit + i);
        }
        std::vector<float> seen;
    };
    std::vector<float> scores(96, 0);
    scores[0] = scores[1] = scores[50] = 9, scores[51] = 4;
    const auto seen = [&](size_t size, ScorePooling mode) {
        auto pooled = config(true, EvictionGranularity::TOKEN);
        const auto policy = std::make_shared<Watching>();
        pooled.custom_policy = policy;
        pooled.score_pooling = size;
        pooled.score_pooling_mode = mode;
        World world(CacheFormat::f32, 1, pooled);
        world.append(96);
        world.evictor->observe(world.state, 96, 1, {scores.data()});
        world.evict(world.evictor->due(96));
        return policy->seen;
    };
    EXPECT_EQ(seen(1, ScorePooling::ROOT_MEAN), scores);
    EXPECT_EQ(seen(0, ScorePooling::ROOT_MEAN), scores);  // the caller's policy: as they are
    std::vector<float> greatest = scores, root_mean(96, 0);
    greatest[2] = greatest[49] = greatest[51] = 9, greatest[52] = 4;
    EXPECT_EQ(seen(3, ScorePooling::MAX), greatest);
    // ((3 + 3) / 3)^2 at the beginning, where one neighbour is missing.
    root_mean[0] = root_mean[1] = 4, root_mean[2] = root_mean[49] = 1;
    root_mean[50] = root_mean[51] = 25.0f / 9, root_mean[52] = 4.0f / 9;
    const std::vector<float> got = seen(3, ScorePooling::ROOT_MEAN);
    const std::vector<float> both = seen(3, ScorePooling::WITH_OWN);
    for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_NEAR(got[i], root_mean[i], 1e-6) << i;
        EXPECT_NEAR(both[i], scores[i] + 2 * root_mean[i], 1e-5) << i;
    }
}

TEST(EvictionConfig, ByDefaultAttentionChoosesTokensThatAreScoredWithTheirNeighbours) {
    CacheEvictionConfig config;  // norm_sum
    EXPECT_EQ(config.resolved_granularity(), EvictionGranularity::TOKEN);
    EXPECT_EQ(config.pooling_size(), 17u);
    config.score_pooling = 5;
    EXPECT_EQ(config.pooling_size(), 5u);
    config.score_pooling = 0;
    config.granularity = EvictionGranularity::BLOCK;
    EXPECT_EQ(config.pooling_size(), 1u);
    config.granularity = EvictionGranularity::AUTO;
    for (const char* name : {"streaming", "key_norm", "key_diff"}) {
        config.policy = name;
        EXPECT_EQ(config.resolved_granularity(), EvictionGranularity::BLOCK) << name;
    }
    config.policy = "";
    config.kvcrush_config = KVCrushConfig(1);  // a program written for openvino_genai
    EXPECT_EQ(config.resolved_granularity(), EvictionGranularity::BLOCK);
    config.validate(32);
}

TEST(Evictor, ObservesTheQueriesThatThePolicyWants) {
    const auto window = [](const CacheEvictionConfig& config, EvictionProgress progress) {
        World world(CacheFormat::f32, 1, config);
        return world.evictor->window(world.state, progress);
    };
    CacheEvictionConfig norm_sum(16, 16, 96, AggregationMode::NORM_SUM);
    EXPECT_EQ(window(norm_sum, {0, 50, 60, false, false}), 0u);   // a chunk, not the last
    EXPECT_EQ(window(norm_sum, {0, 55, 60, false, false}), 3u);   // part of the last 8
    EXPECT_EQ(window(norm_sum, {50, 10, 10, false, false}), 8u);  // all of them
    EXPECT_EQ(window(norm_sum, {60, 1, 1, true, false}), 1u);     // every decode
    CacheEvictionConfig snapkv = norm_sum;
    snapkv.policy = "snapkv";
    EXPECT_EQ(window(snapkv, {0, 60, 60, false, false}), 0u);  // nothing goes after the prompt
    EXPECT_EQ(window(snapkv, {0, 90, 90, false, false}), 2u);  // what is near the budget
    EXPECT_EQ(window(snapkv, {0, 120, 120, false, false}), 8u);
    EXPECT_EQ(window(snapkv, {87, 1, 1, true, false}), 0u);
    EXPECT_EQ(window(snapkv, {88, 1, 1, true, false}), 1u);  // 8 steps before the decision
    CacheEvictionConfig tova = norm_sum;
    tova.policy = "tova";
    EXPECT_EQ(window(tova, {94, 1, 1, true, false}), 0u);
    EXPECT_EQ(window(tova, {95, 1, 1, true, false}), 1u);
    CacheEvictionConfig streaming = norm_sum;
    streaming.policy = "streaming";
    EXPECT_EQ(window(streaming, {95, 1, 1, true, false}), 0u);
    // A decision that waits until 128 tokens are held.
    for (const auto& [policy, before, at] :
         {std::tuple("streaming", 0u, 0u), std::tuple("tova", 0u, 1u),
          std::tuple("snapkv", 1u, 1u)}) {
        CacheEvictionConfig config = norm_sum;
        config.policy = policy;
        World delayed(CacheFormat::f32, 1, config);
        delayed.state.first_decision = 128;
        const auto in_decode = [&](size_t held) {
            return delayed.evictor->window(delayed.state, {held, 1, 1, true, false});
        };
        EXPECT_EQ(in_decode(119), 0u) << policy;
        EXPECT_EQ(in_decode(126), before) << policy;
        EXPECT_EQ(in_decode(127), at) << policy;
    }
    World never(CacheFormat::f32, 1, norm_sum);
    never.state.may_evict = false;
    EXPECT_EQ(never.evictor->window(never.state, {95, 1, 1, true, false}), 0u);
}

TEST(Evictor, AWrongAnswerIsAnErrorAndChangesNothing) {
    class Wrong final : public EvictionPolicy {
    public:
        explicit Wrong(std::vector<size_t> answer) : m_answer(std::move(answer)) {}
        void drop(const EvictionView&, size_t, std::vector<size_t>& dropped) override {
            dropped = m_answer;
        }

    private:
        std::vector<size_t> m_answer;
    };
    for (const std::vector<size_t>& answer :
         std::vector<std::vector<size_t>>{{}, {1, 1}, {0, 1}, {1, 6}, {1, 2, 3}, {1, size_t(-1)}}) {
        auto wrong = config(true, EvictionGranularity::BLOCK);
        wrong.custom_policy = std::make_shared<Wrong>(answer);
        World world(CacheFormat::f32, 1, wrong);
        world.append(112);  // 7 blocks, of which 1 to 5 may go, two of them now
        EXPECT_THROW(world.evict(2 * block_size), InvalidArgument);
        EXPECT_EQ(world.blocks.size(), 7u);
        EXPECT_EQ(world.state.num_evicted, 0u);
        world.check();
    }
}

TEST(RotationTable, HoldsTheAnglesOfItsFrequencies) {
    RotationTable table({4, false, {1.0, 0.25}});
    EXPECT_FALSE(RotationTable().grow(5));
    EXPECT_TRUE(table.grow(3));
    EXPECT_FALSE(table.grow(3));
    EXPECT_TRUE(table.grow(1000));
    ASSERT_GT(table.num_rows(), 1000u);
    for (const size_t row : {size_t(0), size_t(3), size_t(1000)})
        for (size_t i = 0; i < 2; ++i) {
            const double angle = double(row) * (i == 0 ? 1.0 : 0.25);
            EXPECT_NEAR(table.data()[row * 4 + i], std::cos(angle), 1e-6);
            EXPECT_NEAR(table.data()[row * 4 + 2 + i], std::sin(angle), 1e-6);
        }
}

}  // namespace
}  // namespace pagewheel
