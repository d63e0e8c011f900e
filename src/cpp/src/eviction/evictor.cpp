#include "eviction/evictor.hpp"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/check.hpp"
#include "kernels/batch_tables.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel {
namespace {

/// Positions grow so far by default, or to twice the budget: angles are kept for each of them.
constexpr size_t most_positions = 32768;

/// Greatest score of the `size` slots around each.
std::vector<float> max_pooled(const std::vector<float>& scores, size_t size) {
    std::vector<float> pooled(scores.size());
    for (size_t i = 0; i < scores.size(); ++i) {
        const size_t first = i < size / 2 ? 0 : i - size / 2;
        const size_t last = std::min(scores.size(), i + size / 2 + 1);
        pooled[i] =
            *std::max_element(scores.begin() + ptrdiff_t(first), scores.begin() + ptrdiff_t(last));
    }
    return pooled;
}

/// Square of the mean root of the scores of the `size` slots around each; past the ends are zeros.
std::vector<float> root_mean_pooled(const std::vector<float>& scores, size_t size) {
    std::vector<double> sums(scores.size() + 1, 0);  // of all roots before
    for (size_t i = 0; i < scores.size(); ++i)
        sums[i + 1] = sums[i] + std::sqrt(std::max(double(scores[i]), 0.0));
    std::vector<float> pooled(scores.size());
    for (size_t i = 0; i < scores.size(); ++i) {
        const size_t first = i < size / 2 ? 0 : i - size / 2;
        const double mean =
            (sums[std::min(scores.size(), i + size / 2 + 1)] - sums[first]) / double(size);
        pooled[i] = float(mean * mean);
    }
    return pooled;
}

std::vector<float> pooled_scores(const std::vector<float>& scores, size_t size, ScorePooling mode) {
    if (mode == ScorePooling::MAX) return max_pooled(scores, size);
    std::vector<float> pooled = root_mean_pooled(scores, size);
    if (mode == ScorePooling::WITH_OWN)
        for (size_t i = 0; i < scores.size(); ++i) pooled[i] = scores[i] + 2 * pooled[i];
    return pooled;
}

/// Entries of a layer's table that are free once its survivors have closed up. Where blocks' worth
/// of tokens go, blocks after those that lose some keep their bytes.
struct ClosedUp {
    std::vector<size_t> packed;  ///< that survivors are moved within or to
    std::vector<size_t> free;
    size_t end = 0;  ///< slots from here on stay where they are
};

ClosedUp close_up(const std::vector<size_t>& dropped, size_t held, size_t block_size) {
    ClosedUp result;
    const bool even = dropped.size() % block_size == 0;
    const size_t num_free =
        blocks_for(held, block_size) - blocks_for(held - dropped.size(), block_size);
    bool whole = even;  // blocks go whole: nothing moves
    for (size_t i = 0; whole && i < dropped.size(); i += block_size)
        whole = dropped[i] % block_size == 0 &&
                dropped[i + block_size - 1] == dropped[i] + block_size - 1;
    if (whole) {
        for (size_t i = 0; i < dropped.size(); i += block_size)
            result.free.push_back(dropped[i] / block_size);
        return result;
    }
    const size_t first = dropped.front() / block_size;
    const size_t last = (even ? dropped.back() : held - 1) / block_size;
    result.end = std::min(held, (last + 1) * block_size);
    for (size_t b = first; b + num_free <= last; ++b) result.packed.push_back(b);
    for (size_t b = last + 1 - num_free; b <= last; ++b) result.free.push_back(b);
    return result;
}

/// a without what is in b; both ascending.
std::vector<size_t> without(const std::vector<size_t>& a, const std::vector<size_t>& b) {
    std::vector<size_t> result;
    std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(result));
    return result;
}

/// The entries of Sequence::blocks behind entries of a layer's table, ascending.
std::vector<size_t> entries_of(const SlotTable& slots, const std::vector<size_t>& table) {
    std::vector<size_t> entries;
    for (size_t i : table) entries.push_back(slots.entry(i));
    std::sort(entries.begin(), entries.end());
    return entries;
}

/// The first slot that is not read at the position of its number once slot `dropped` has gone.
size_t first_rotated(const SlotTable& slots, size_t dropped) {
    size_t first = 0;
    while (first < dropped && slots.read_at[first] == int64_t(first)) ++first;
    return first;
}

void move_survivors(const LayerCache& cache, const std::vector<BlockId>& table,
                    const std::vector<size_t>& dropped, size_t end) {
    size_t to = dropped.front();
    for (size_t i = 0; i < dropped.size(); ++i) {
        const size_t from = dropped[i] + 1;
        const size_t next = i + 1 < dropped.size() ? dropped[i + 1] : end;
        cache.move_tokens(table, from, to, next - from);
        to += next - from;
    }
}

}  // namespace

Evictor::Evictor(const CacheEvictionConfig& config, std::vector<LayerCache> layers,
                 size_t block_size, size_t context_length,
                 const std::vector<RotaryKind>& rotated_in_place)
    : m_config(config), m_layers(std::move(layers)), m_block_size(block_size) {
    config.validate(block_size);
    if (config.apply_rotation)
        for (const RotaryKind& kind : rotated_in_place) m_angles.emplace_back(kind);
    m_position_limit =
        config.position_limit == 0
            ? std::min(context_length, std::max(most_positions, 2 * config.get_max_cache_size()))
            : config.position_limit;
    if (context_length > 0) m_position_limit = std::min(m_position_limit, context_length);
    m_chunk = config.get_evictable_size() / block_size * block_size;
    const bool whole = config.resolved_granularity() == EvictionGranularity::BLOCK;
    const size_t share = std::max<size_t>(1, config.get_max_cache_size() / 16);
    m_room = whole ? block_size : std::min(block_size, share);
    // No chunk reaches beyond the model's context where there is room for one.
    const size_t kept = blocks_for(config.get_max_cache_size() - m_room, block_size);
    const size_t context_blocks = context_length / block_size;
    if (context_blocks > kept) m_chunk = std::min(m_chunk, (context_blocks - kept) * block_size);
    m_policy = make_policy(config);
    m_observed = m_policy->observed();
    // More would depend on how the prompt is cut into chunks.
    check_argument(!m_observed.queries || m_observed.prompt <= kernels::BatchTables::most_observed,
                   ParameterName("policy"), " wants to see more than ",
                   kernels::BatchTables::most_observed,
                   " queries of a prompt; allowed: up to that");
}

size_t Evictor::window(const EvictionState& state, const EvictionProgress& progress) const {
    if (!state.may_evict) return 0;
    const size_t budget = m_config.get_max_cache_size(),
                 after = progress.held + progress.new_tokens;
    size_t wanted = m_observed.decode, decision = next_decision(state);
    if (!progress.decoding) {
        size_t end = progress.held + progress.to_prompt_end;
        if (progress.in_chunks) end = std::min(end, chunk_end());
        if (end >= budget || m_observed.accumulate) {
            wanted = m_observed.prompt;
            decision = end;
        }
    } else if (m_observed.accumulate) {
        return m_observed.decode == 0 ? 0 : progress.new_tokens;
    }
    if (wanted == ObservedQueries::all) return progress.new_tokens;
    return after + wanted <= decision ? 0
                                      : std::min(after + wanted - decision, progress.new_tokens);
}

void Evictor::prepare(EvictionState& state, size_t held) const {
    state.layers.resize(m_layers.size());
    for (SlotTable& layer : state.layers) layer.extend(held, state.num_evicted, state.shift);
}

void Evictor::observe(EvictionState& state, size_t held, size_t window,
                      const std::vector<const float*>& scores) const {
    prepare(state, held);
    for (size_t l = 0; l < m_layers.size(); ++l) state.layers[l].observe(scores[l], held, window);
}

void Evictor::observe_queries(EvictionState& state, size_t held, size_t count,
                              const std::vector<const float*>& queries) const {
    tbb::parallel_for(size_t(0), m_layers.size(), [&](size_t l) {
        SlotTable& slots = state.layers[l];
        const CacheLayer& layer = m_layers[l].description();
        if (never_asks(layer)) return;
        const size_t size = layer.heads * layer.layout.key_size;
        std::vector<float> query(size);
        for (size_t i = 0; i < count; ++i) {
            std::copy_n(queries[l] + i * size, size, query.data());
            layer.rotary.unrotate(slots.written_at(held - count + i), layer.heads,
                                  layer.layout.key_size, query.data());
            slots.queries.add(query, layer.layout.key_size, layer.rotary.dims);
        }
    });
}

size_t Evictor::due(size_t held) const {
    const size_t budget = m_config.get_max_cache_size();
    if (held < budget) return 0;
    const size_t count = held - budget + m_room;
    // The last block stays as full as it is where whole ones go.
    return m_config.resolved_granularity() == EvictionGranularity::BLOCK
               ? count / m_block_size * m_block_size
               : count;
}

bool Evictor::never_asks(const CacheLayer& layer) const {
    return layer.sliding_window > 0 &&
           layer.sliding_window + m_block_size <= m_config.get_max_cache_size();
}

size_t Evictor::num_out_of_window(const CacheLayer& layer, const SlotTable& slots) const {
    if (layer.sliding_window == 0) return 0;
    const int64_t first_seen = slots.read_at.back() + 2 - int64_t(layer.sliding_window);
    const auto seen = std::lower_bound(slots.read_at.begin(), slots.read_at.end(), first_seen);
    return size_t(seen - slots.read_at.begin());
}

void Evictor::rotate_in_place(SlotTable& slots, const LayerCache& cache,
                              const std::vector<BlockId>& blocks) const {
    const LayerRotary& rotary = cache.description().rotary;
    if (rotary.dims > 0) cache.rotate_back(slots.table(blocks), slots.delta, m_angles[rotary.kind]);
    std::fill(slots.delta.begin(), slots.delta.end(), 0);
}

std::vector<size_t> Evictor::choose(size_t layer, const EvictionState& state,
                                    const std::vector<BlockId>& blocks, size_t held,
                                    size_t num_dropped, bool is_prefilling) const {
    const LayerCache& cache = m_layers[layer];
    const SlotTable& known = state.layers[layer];
    const bool whole = m_config.resolved_granularity() == EvictionGranularity::BLOCK;
    EvictionView view;
    view.unit_size = whole ? m_block_size : 1;
    // What no query will see again goes before anything else.
    const size_t unseen =
        std::min(num_dropped, num_out_of_window(cache.description(), known)) / view.unit_size;
    std::vector<size_t> slots(num_dropped);
    std::iota(slots.begin(), slots.end(), size_t(0));
    const size_t count = num_dropped / view.unit_size - unseen;
    if (count == 0) return slots;
    view.layer = cache.description().layer;
    view.is_prefilling = is_prefilling;
    view.num_tokens = held;
    view.first_unit =
        std::max(unseen, (m_config.get_start_size() + view.unit_size - 1) / view.unit_size);
    // Tokens of a block that is not full may go, too, but not as a block.
    view.last_unit = (held - m_config.get_recent_size()) / view.unit_size;
    std::vector<float> pooled;
    if (const size_t size = m_config.pooling_size(); size > 1)
        pooled = pooled_scores(known.score, size, m_config.score_pooling_mode);
    view.scores = pooled.empty() ? known.score.data() : pooled.data();
    const std::vector<int32_t> lifetimes = known.lifetimes();
    view.lifetimes = lifetimes.data();
    view.positions = known.position.data();
    view.read_at = known.read_at.data();
    view.rotations = known.delta.data();
    view.kv_heads = cache.layout().kv_heads;
    view.head_size = cache.layout().key_size;
    view.value_size = cache.layout().value_size;
    const std::vector<BlockId> table = known.table(blocks);
    const auto check_tokens = [&](const char* name, size_t first, size_t end) {
        check_argument(first <= end && end <= held, ErrorCode::policy_failed, name, "(", first,
                       ", ", end, "): allowed are tokens 0 to ", held);
    };
    view.read_keys = [&](size_t first, size_t end, float* out) {
        check_tokens("read_keys", first, end);
        cache.read_keys(table, first, end, out);
    };
    view.read_values = [&](size_t first, size_t end, float* out) {
        check_tokens("read_values", first, end);
        cache.read_values(table, first, end, out);
    };
    const LayerRotary& rotary = cache.description().rotary;
    std::vector<float> mean_query, mean_amplitude;
    if (m_observed.queries) {
        view.read_keys_before_rotation = [&](size_t first, size_t end, float* out) {
            check_tokens("read_keys_before_rotation", first, end);
            cache.read_keys(table, first, end, out);
            for (size_t slot = first; slot < end; ++slot, out += view.kv_heads * view.head_size)
                rotary.unrotate(known.written_at(slot), view.kv_heads, view.head_size, out);
        };
        mean_query = known.queries.mean_query();
        mean_amplitude = known.queries.mean_amplitude();
        view.num_queries = known.queries.count;
        view.heads = cache.description().heads;
        view.mean_query = mean_query.data();
        view.mean_amplitude = mean_amplitude.data();
        view.rotary_dims = rotary.dims;
        view.inverse_frequencies = rotary.inverse_frequencies.data();
    }

    std::vector<size_t> units;
    m_policy->drop(view, count, units);
    std::sort(units.begin(), units.end());
    check_argument(units.size() == count, ErrorCode::policy_failed, "the eviction policy named ",
                   units.size(), " units; expected ", count);
    for (size_t i = 0; i < count; ++i) {
        check_argument(units[i] >= view.first_unit && units[i] < view.last_unit,
                       ErrorCode::policy_failed, "the eviction policy named unit ", units[i],
                       "; allowed: ", view.first_unit, " to ", view.last_unit - 1);
        check_argument(i == 0 || units[i] != units[i - 1], ErrorCode::policy_failed,
                       "the eviction policy named unit ", units[i], " twice");
        for (size_t s = 0; s < view.unit_size; ++s)
            slots[(unseen + i) * view.unit_size + s] = units[i] * view.unit_size + s;
    }
    return slots;
}

EvictionDecision Evictor::decide(EvictionState& state, const std::vector<BlockId>& blocks,
                                 size_t held, size_t count, bool is_prefilling, size_t next_end,
                                 const std::function<size_t(size_t)>& references) const {
    prepare(state, held);
    EvictionDecision decision;
    const size_t next_position = held + state.num_evicted - state.shift;
    decision.closes_positions =
        m_config.apply_rotation && next_position + next_end - (held - count) > m_position_limit;
    std::vector<std::vector<size_t>> packed, unused;  // by layer: entries of `blocks`
    std::vector<size_t> votes(blocks.size(), 0);
    decision.dropped.resize(m_layers.size());
    const auto choose_of = [&](size_t l) {
        decision.dropped[l] = choose(l, state, blocks, held, count, is_prefilling);
    };
    if (m_config.custom_policy)  // one that may need a lock, or remember the layer before
        for (size_t l = 0; l < m_layers.size(); ++l) choose_of(l);
    else
        tbb::parallel_for(size_t(0), m_layers.size(), choose_of);
    for (size_t l = 0; l < m_layers.size(); ++l) {
        const ClosedUp closed = close_up(decision.dropped[l], held, m_block_size);
        packed.push_back(entries_of(state.layers[l], closed.packed));
        unused.push_back(entries_of(state.layers[l], closed.free));
        for (size_t entry : unused.back()) ++votes[entry];
    }
    // What most layers have no use for goes; survivors of the other layers move. Shared blocks go
    // before others, as they must be copied before they are written.
    std::vector<size_t> order;
    for (size_t e = 0; e < votes.size(); ++e)
        if (votes[e] > 0) order.push_back(e);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
        return votes[a] != votes[b] ? votes[a] > votes[b] : references(a) > references(b);
    });
    order.resize(blocks_for(held, m_block_size) - blocks_for(held - count, m_block_size));
    decision.released = std::move(order);
    std::sort(decision.released.begin(), decision.released.end());

    std::vector<bool> written(blocks.size(), false);
    for (size_t l = 0; l < m_layers.size(); ++l) {
        for (size_t entry : packed[l]) written[entry] = true;
        for (size_t entry : without(unused[l], decision.released)) written[entry] = true;
        // Keys behind the first that goes or went rotate, in what remains.
        for (size_t i = first_rotated(state.layers[l], decision.dropped[l].front()) / m_block_size;
             decision.closes_positions && rotates_in_place() && i < blocks.size(); ++i) {
            const size_t entry = state.layers[l].entry(i);
            if (!std::binary_search(decision.released.begin(), decision.released.end(), entry))
                written[entry] = true;
        }
    }
    for (size_t e = 0; e < written.size(); ++e)
        if (written[e]) decision.written.push_back(e);
    return decision;
}

void Evictor::apply(const EvictionDecision& decision, EvictionState& state,
                    const std::vector<BlockId>& blocks) {
    const std::vector<size_t>& released = decision.released;
    std::vector<BlockId> remaining;
    for (size_t i = 0; i < blocks.size(); ++i)
        if (!std::binary_search(released.begin(), released.end(), i))
            remaining.push_back(blocks[i]);
    if (decision.closes_positions)
        for (RotationTable& angles : m_angles)
            angles.grow(state.num_evicted - state.shift + decision.num_dropped());
    tbb::parallel_for(size_t(0), m_layers.size(), [&](size_t l) {
        SlotTable& slots = state.layers[l];
        const std::vector<size_t>& dropped = decision.dropped[l];
        const ClosedUp closed = close_up(dropped, slots.position.size(), m_block_size);
        if (!closed.packed.empty())
            move_survivors(m_layers[l], slots.table(blocks), dropped, closed.end);

        // Where a released entry has survivors they go to one that this layer has no more use for.
        const std::vector<size_t> unused = entries_of(slots, closed.free);
        const std::vector<size_t> from = without(released, unused), to = without(unused, released);
        std::vector<size_t> moved_to(blocks.size());
        std::iota(moved_to.begin(), moved_to.end(), size_t(0));
        for (size_t i = 0; i < from.size(); ++i) {
            m_layers[l].copy_block(blocks[from[i]], blocks[to[i]]);
            moved_to[from[i]] = to[i];
        }
        std::vector<uint32_t> order;
        for (size_t i = 0; i < blocks.size(); ++i) {
            if (std::binary_search(closed.free.begin(), closed.free.end(), i)) continue;
            const size_t entry = moved_to[slots.entry(i)];
            const auto gone = std::lower_bound(released.begin(), released.end(), entry);
            order.push_back(uint32_t(entry - size_t(gone - released.begin())));
        }
        slots.order = std::move(order);
        slots.compact(dropped);
        if (!m_observed.accumulate) slots.forget_scores();
        if (decision.closes_positions) slots.close_positions();
        if (decision.closes_positions && rotates_in_place())
            rotate_in_place(slots, m_layers[l], remaining);
        if (m_config.apply_rotation) slots.describe_rotation(m_block_size);
    });
    state.num_evicted += decision.num_dropped();
    if (decision.closes_positions) state.shift = state.num_evicted;
    for (const SlotTable& slots : state.layers)
        state.largest_delta = std::max(state.largest_delta, size_t(slots.largest_delta()));
}

}  // namespace pagewheel
