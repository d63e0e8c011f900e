#include "runtime/model_drafter.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/check.hpp"
#include "sampling/log_probs.hpp"

namespace pagewheel {
namespace {

/// Drafts are right by how likely the draft model finds them.
uint8_t kind_of(float probability) {
    constexpr float least[] = {0.1f,  0.2f, 0.3f,  0.4f,  0.5f,  0.6f,   0.7f,  0.8f,
                               0.85f, 0.9f, 0.94f, 0.97f, 0.99f, 0.997f, 0.999f};
    static_assert(std::size(least) + 1 == Draft::num_kinds);
    const auto kind = std::upper_bound(std::begin(least), std::end(least), probability);
    return uint8_t(Draft::first_computed + size_t(kind - std::begin(least)));
}

Model& with_cache(Model& model, size_t num_blocks) {
    check_argument(model.blocks_per_state() == 0, ErrorCode::model_unsupported,
                   ParameterName("draft_model"),
                   " has layers that keep states, which cannot go back to before a wrong draft");
    model.allocate_cache(num_blocks);
    return model;
}

}  // namespace

Draft likeliest_draft(const float* logits, size_t vocabulary) {
    const Isa isa = detected_isa();
    try {
        const auto token = int64_t(find_best_token(logits, vocabulary, isa));
        return {token, kind_of(std::exp(LogProbs(logits, vocabulary, isa).of(token)))};
    } catch (const LogitsError&) {
        return {0, kind_of(0)};
    }
}

ModelDrafter::ModelDrafter(std::unique_ptr<Model> model, const SchedulerConfig& config,
                           const Limits& limits, std::function<Clock::time_point()> now)
    : m_model(std::move(model)),
      m_limits(limits),
      m_now(std::move(now)),
      m_scheduler(config, limits.num_blocks, with_cache(*m_model, limits.num_blocks).block_size()) {
}

bool ModelDrafter::can_read(size_t num_tokens) const {
    return num_tokens <= m_scheduler.max_tokens() &&
           (m_limits.context_length == 0 || num_tokens < m_limits.context_length);
}

void ModelDrafter::extend(const std::vector<SequenceState*>& sequences) {
    m_wanted.clear();
    for (SequenceState* sequence : sequences)
        if (can_read(sequence->tokens.size() + sequence->drafts->proposed.size()))
            follow(*sequence);
    if (m_wanted.empty()) return;
    try {
        run();
    } catch (...) {
        // What the step was to write is not in the cache.
        for (const auto& [sequence, shadow] : m_shadows) m_scheduler.discard(*shadow);
        m_shadows.clear();
        throw;
    }
}

void ModelDrafter::follow(SequenceState& sequence) {
    std::unique_ptr<Shadow>& shadow = m_shadows[&sequence];
    const bool is_new = !shadow;
    if (is_new) {
        shadow = std::make_unique<Shadow>();
        shadow->original = &sequence;
        shadow->priority = sequence.priority;
        shadow->prefix_key = sequence.prefix_key;
    }
    std::vector<int64_t>& tokens = shadow->tokens;
    std::vector<int64_t>& read = shadow->read;
    std::vector<size_t>& ends = shadow->ends;
    const std::vector<Draft>& drafts = sequence.drafts->proposed;
    const size_t count = sequence.tokens.size();
    const auto drop = [&] {
        m_scheduler.discard(*shadow);
        m_shadows.erase(&sequence);
    };
    // After a preemption the shadow has lost its drafts.
    for (; !ends.empty() && ends.back() > tokens.size(); ends.pop_back()) read.pop_back();
    if (drafts.empty()) {
        // What of the drafts was confirmed is computed.
        size_t& known = shadow->num_known;
        const size_t most = std::min(read.size(), count);
        while (known < most && read[known] == sequence.tokens[known]) ++known;
        shadow->num_drafted = 0;
        read.resize(known);
        ends.resize(known);
        tokens.resize(known > 0 ? ends.back() : 0);
        const size_t computed = tokens.size() - (known < count ? 0 : 1);
        if (shadow->num_cached > computed)
            m_scheduler.rollback(*shadow, shadow->num_cached - computed);
        for (; known < count; ++known) {
            const int64_t token = sequence.tokens[known];
            if (!m_limits.maps && size_t(token) >= m_model->vocabulary()) return drop();
            append(*shadow, token);
        }
    }
    while (read.size() < count + drafts.size()) append(*shadow, drafts[read.size() - count].token);
    shadow->num_drafted = tokens.size() - ends[count - 1];
    if (!can_read(tokens.size())) return drop();
    if (is_new) {
        shadow->prompt_length = ends[sequence.prompt_length - 1];
        m_scheduler.add(*shadow);
    } else {
        m_scheduler.resume(*shadow);
    }
    m_wanted.insert(shadow.get());
}

void ModelDrafter::append(Shadow& shadow, int64_t token) const {
    if (m_limits.maps)
        m_limits.maps->to_draft_model.append(token, shadow.tokens);
    else
        shadow.tokens.push_back(token);
    shadow.read.push_back(token);
    shadow.ends.push_back(shadow.tokens.size());
}

void ModelDrafter::run() {
    const Batch& batch = m_scheduler.schedule();
    if (batch.empty()) return;
    const auto begin = m_now();
    const bool decodes =
        std::none_of(batch.entries.begin(), batch.entries.end(),
                     [](const BatchEntry& entry) { return entry.sequence->is_prefilling(); });
    const Logits logits = m_model->run(batch, {});
    m_scheduler.advance();
    take_drafts(batch, logits);
    if (decodes) m_times.record(batch.num_tokens, double(microseconds_since(begin, m_now())));
#ifndef NDEBUG
    m_scheduler.store().check_integrity();
#endif
}

void ModelDrafter::take_drafts(const Batch& batch, const Logits& logits) {
    size_t row = 0;
    for (const BatchEntry& entry : batch.entries) {
        row += entry.num_logits;
        if (entry.sequence->num_uncached() > 0 || m_wanted.count(entry.sequence) == 0) continue;
        Draft draft = likeliest_draft(logits.row(row - 1), logits.vocabulary);
        if (m_limits.maps) draft.token = m_limits.maps->to_model.first_of(draft.token);
        if (draft.token < 0 || size_t(draft.token) >= m_limits.vocabulary) continue;
        const auto& shadow = static_cast<const Shadow&>(*entry.sequence);
        shadow.original->drafts->proposed.push_back(draft);
    }
}

void ModelDrafter::finish(const SequenceState& sequence) {
    m_repeats.finish(sequence);
    const auto found = m_shadows.find(&sequence);
    if (found == m_shadows.end()) return;
    m_scheduler.remove(*found->second);
    m_shadows.erase(found);
    if (m_shadows.empty()) m_scheduler.give_back_unused(m_model->cache());
}

void ModelDrafter::forget(const std::optional<std::set<std::string>>& salts) {
    m_repeats.forget(salts);
    m_scheduler.clear_prefixes(salts);
    m_scheduler.give_back_unused(m_model->cache());
}

}  // namespace pagewheel
