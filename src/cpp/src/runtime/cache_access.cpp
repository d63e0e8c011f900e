// What users do with the prefix cache, and see of the whole cache.
#include "runtime/engine.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "cache/cache_size.hpp"
#include "cache/prefix_file.hpp"

namespace pagewheel {

Engine::Prefixes::Prefixes(Engine& engine) : m_lock(engine), m_engine(engine) {
    engine.accept();  // a pin must leave them room
}

Engine::Prefixes::~Prefixes() {
    m_engine.m_admission.set_room(m_engine.m_scheduler.max_tokens());
    m_engine.m_recorder.count_blocks();
}

size_t Engine::Prefixes::num_tokens() const {
    size_t count = 0;
    for (const auto& [salt, tokens] : num_tokens_by_salt()) count += tokens;
    return count;
}

std::map<std::string, size_t> Engine::Prefixes::num_tokens_by_salt() const {
    std::map<std::string, size_t> counts;
    m_engine.m_scheduler.store().tree().visit(
        [&](const PrefixKey& key, NodeId, BlockId, const std::vector<int64_t>& tokens) {
            counts[key.salt] += tokens.size();
        });
    return counts;
}

bool Engine::Prefixes::has(const PrefixKey& key, const std::vector<int64_t>& tokens) const {
    PrefixMatch match;
    m_engine.m_scheduler.store().tree().match(key, tokens.data(), tokens.size(), match);
    return match.num_tokens == tokens.size();
}

void Engine::Prefixes::check_room(size_t num_tokens, size_t num_pinned) const {
    const size_t num_blocks = m_engine.m_scheduler.pool().size();
    check_argument(2 * num_pinned <= num_blocks, "a prefix of ", num_tokens,
                   " tokens cannot be pinned: ", num_pinned, " of ", num_blocks,
                   " blocks would be, and half of them may");
    const size_t most_evicting = m_engine.m_eviction ? m_engine.m_eviction->most_blocks() : 0;
    check_argument(num_blocks - num_pinned >= most_evicting, "a prefix of ", num_tokens,
                   " tokens cannot be pinned: it would leave ", num_blocks - num_pinned,
                   " blocks, and eviction needs ", most_evicting);
    const size_t room = (num_blocks - num_pinned) * m_engine.m_model->block_size();
    for (const auto& request : m_engine.m_requests.all())
        check_argument(request->max_tokens <= room, "a prefix of ", num_tokens,
                       " tokens cannot be pinned: it would leave room for ", room, " tokens, and ",
                       request->name(), " may need ", request->max_tokens);
}

size_t Engine::Prefixes::pin(const PrefixKey& key, const std::vector<int64_t>& tokens) {
    check_room(tokens.size(), m_engine.m_scheduler.pins().num_blocks() +
                                  blocks_for(tokens.size(), m_engine.m_model->block_size()) +
                                  m_engine.m_model->blocks_per_state());
    return m_engine.m_scheduler.pins().pin(key, tokens);
}

bool Engine::Prefixes::unpin(const PrefixKey& key, const std::vector<int64_t>& tokens) {
    return m_engine.m_scheduler.pins().unpin(key, tokens);
}

void Engine::Prefixes::clear(const std::optional<std::set<std::string>>& salts) {
    m_engine.m_scheduler.clear_prefixes(salts);
    m_engine.m_drafting->forget(salts);
    m_engine.m_scheduler.give_back_unused(m_engine.m_model->cache());
}

void Engine::Prefixes::save(const std::filesystem::path& path,
                            const PrefixSelection& selection) const {
    save_prefixes(path, m_engine.m_model->cache_description(), m_engine.m_scheduler.store().tree(),
                  m_engine.m_model->cache(), selection);
}

size_t Engine::Prefixes::load(const std::filesystem::path& path) {
    return load_prefixes(path, m_engine.m_model->cache_description(), m_engine.m_scheduler.store(),
                         m_engine.m_model->cache());
}

namespace {

// Ranges into which a sequence's tokens are divided: as many as a picture shows apart.
constexpr size_t most_bins = 128;

SequenceStatus status_of(const Sequence& sequence) {
    if (sequence.is_preempted()) return SequenceStatus::PREEMPTED;
    if (!sequence.is_running()) return SequenceStatus::WAITING;
    return sequence.is_prefilling() ? SequenceStatus::PREFILLING : SequenceStatus::DECODING;
}

SequenceView view_of(const SequenceState& sequence) {
    SequenceView view;
    view.request_id = sequence.request->id;
    view.index = sequence.index;
    view.cache_salt = sequence.prefix_key.salt;
    view.state = status_of(sequence);
    view.priority = sequence.priority;
    view.num_prompt_tokens = sequence.prompt_length;
    view.num_tokens = sequence.num_committed();
    view.num_computed = std::min(sequence.num_cached, view.num_tokens);
    view.num_evicted = sequence.num_evicted;
    view.num_prefix_hits = sequence.num_prefix_hits;
    view.blocks = sequence.blocks;
    return view;
}

void add_layer(const SlotTable& slots, size_t layer, KeptTokens& kept) {
    uint32_t* counts = kept.kept.data() + layer * kept.num_bins;
    int32_t* rotated = kept.rotated.data() + layer * kept.num_bins;
    std::vector<int64_t> sums(kept.num_bins);
    for (size_t slot = 0; slot < slots.position.size(); ++slot) {
        const size_t bin =
            std::min(size_t(slots.position[slot]) / kept.tokens_per_bin, kept.num_bins - 1);
        ++counts[bin];
        sums[bin] += slots.delta[slot];
    }
    for (size_t bin = 0; bin < kept.num_bins; ++bin)
        if (counts[bin] > 0) rotated[bin] = int32_t(sums[bin] / int64_t(counts[bin]));
}

KeptTokens kept_of(const SequenceState& sequence, size_t place) {
    const std::vector<SlotTable>& layers = sequence.eviction_state.layers;
    KeptTokens kept;
    kept.sequence = place;
    kept.num_layers = layers.size();
    const size_t num_tokens = std::max<size_t>(sequence.num_cached, 1);
    kept.tokens_per_bin = (num_tokens + most_bins - 1) / most_bins;
    kept.num_bins = (num_tokens + kept.tokens_per_bin - 1) / kept.tokens_per_bin;
    kept.kept.resize(kept.num_layers * kept.num_bins);
    kept.rotated.resize(kept.num_layers * kept.num_bins);
    for (size_t layer = 0; layer < layers.size(); ++layer) add_layer(layers[layer], layer, kept);
    return kept;
}

/// All sequences: those with blocks first, each kind in the order in which it came.
std::vector<const SequenceState*> living(const Requests& requests) {
    std::vector<const SequenceState*> all;
    for (const auto& request : requests.all())
        for (const auto& sequence : request->sequences)
            if (sequence->stage != Sequence::Stage::OUTSIDE) all.push_back(sequence.get());
    std::stable_partition(all.begin(), all.end(),
                          [](const SequenceState* one) { return one->is_running(); });
    return all;
}

std::vector<BlockState> states_of(const BlockStore& store,
                                  const std::vector<const SequenceState*>& sequences) {
    const BlockPool& pool = store.pool();
    std::vector<BlockState> states(pool.size(), BlockState::FREE);
    const auto count = [&](const std::vector<BlockId>& blocks) {
        for (const BlockId block : blocks) {
            BlockState& state = states[size_t(block)];
            state = state == BlockState::FREE ? BlockState::USED : BlockState::SHARED;
        }
    };
    for (const SequenceState* sequence : sequences) {
        count(sequence->blocks);
        if (sequence->state != no_state) count(store.states().blocks_of(sequence->state));
    }
    // Where only the prefix cache has a state, the pool knows nobody but the state itself.
    store.tree().checkpoints().visit([&](NodeId, const std::vector<int64_t>&, StateId state) {
        if (store.states().references(state) > 0) return;
        for (const BlockId block : store.states().blocks_of(state))
            states[size_t(block)] = BlockState::CACHED;
    });
    for (size_t block = 0; block < states.size(); ++block) {
        if (states[block] != BlockState::FREE) continue;
        if (pool.references(BlockId(block)) > 0)
            states[block] = BlockState::PINNED;
        else if (pool.is_kept(BlockId(block)))
            states[block] = BlockState::CACHED;
    }
    return states;
}

/// The place in `sequences` of the sequence whose kept tokens are told.
std::optional<size_t> find_evicted(const std::vector<const SequenceState*>& sequences,
                                   std::optional<uint64_t> evicted_of) {
    std::optional<size_t> found;
    for (size_t i = 0; i < sequences.size(); ++i) {
        const SequenceState& one = *sequences[i];
        if (one.eviction_state.layers.empty() || one.num_evicted == 0) continue;
        if (evicted_of && one.request->id == evicted_of) return i;
        if (!evicted_of && (!found || one.num_evicted > sequences[*found]->num_evicted)) found = i;
    }
    return found;
}

}  // namespace

// All but num_steps and the blocks' number is bounded by the arguments and by what one sequence
// holds.
CacheView Engine::view_cache(size_t most_sequences, std::optional<uint64_t> evicted_of) {
    const StepLock lock(*this);
    accept();  // what waits is shown, too
    std::vector<const SequenceState*> sequences = living(m_requests);
    CacheView view;
    view.num_steps = m_recorder.num_steps();
    view.block_size = m_scheduler.block_size();
    view.num_sequences = sequences.size();
    view.blocks = states_of(m_scheduler.store(), sequences);
    std::optional<size_t> evicted = find_evicted(sequences, evicted_of);
    if (evicted && *evicted >= most_sequences && most_sequences > 0) {
        std::swap(sequences[*evicted], sequences[most_sequences - 1]);
        evicted = most_sequences - 1;
    }
    sequences.resize(std::min(sequences.size(), most_sequences));
    view.sequences.reserve(sequences.size());
    for (const SequenceState* sequence : sequences) view.sequences.push_back(view_of(*sequence));
    if (evicted && *evicted < sequences.size()) view.kept = kept_of(*sequences[*evicted], *evicted);
    return view;
}

}  // namespace pagewheel
