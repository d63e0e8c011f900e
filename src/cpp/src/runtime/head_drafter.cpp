#include "runtime/head_drafter.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "cache/cache_size.hpp"
#include "runtime/model_drafter.hpp"

namespace pagewheel {
namespace {

// Hidden states that nothing is drafted from are read so many at a time, of all sequences: a run
// with one row costs nearly as much, and they would take more and more memory.
constexpr size_t least_due = 128;
// Of the tokens that a head has not read yet, so many at most count for the time of its next draft.
// More than a step leaves are from steps without drafts, and must be read in any case.
constexpr size_t most_due = 4;
// Bytes of free blocks that are given back once there are no sequences.
constexpr size_t worth_while = size_t(64) << 20;

}  // namespace

HeadDrafter::HeadDrafter(std::unique_ptr<Model> head, const Model& model, size_t num_blocks,
                         std::function<Clock::time_point()> now)
    : m_head(std::move(head)),
      m_size(model.hidden_size()),
      m_vocabulary(model.vocabulary()),
      m_now(std::move(now)),
      m_pool(num_blocks) {
    const std::vector<int64_t>& tokens = m_head->drafted_tokens();
    check_argument(m_size > 0 && m_head->hidden_size() == m_size &&
                       (!tokens.empty() || m_head->vocabulary() == m_vocabulary) &&
                       m_head->blocks_per_state() == 0,
                   ErrorCode::model_unsupported,
                   "the head that guesses further tokens is another model's: it has ",
                   m_head->hidden_size(), " hidden channels and ", m_head->vocabulary(),
                   " tokens, the model ", m_size, " and ", m_vocabulary);
    check_argument(tokens.empty() || tokens.size() == m_head->vocabulary(),
                   ErrorCode::model_unsupported, ParameterName("draft_model"), " has d2t for ",
                   tokens.size(), " tokens, but logits of ", m_head->vocabulary());
    for (const int64_t token : tokens)
        check_argument(token >= 0 && size_t(token) < m_vocabulary, ErrorCode::model_unsupported,
                       ParameterName("draft_model"), " drafts token ", token,
                       " by d2t; allowed: [0, ", m_vocabulary, ")");
    m_head->allocate_cache(num_blocks);
}

void HeadDrafter::observe(const Batch& batch, const float* states) {
    m_readings.clear();
    size_t total = 0;
    for (const BatchEntry& entry : batch.entries) {
        SequenceState& sequence = state_of(*entry.sequence);
        if (sequence.drafts) {
            Context& context = keep(sequence, states, entry.num_tokens);
            const size_t count = num_due(context);
            if (count > 0) m_readings.push_back({&context, count, false});
            total += count;
        }
        states += entry.num_tokens * m_size;
    }
    if (total >= least_due) run(/*asked=*/false);
}

HeadDrafter::Context& HeadDrafter::keep(SequenceState& sequence, const float* states,
                                        size_t num_tokens) {
    const size_t begin = sequence.num_cached, end = begin + num_tokens;
    const auto found = m_contexts.find(&sequence);
    if (found != m_contexts.end()) {
        confirm(found->second);
        if (found->second.first + num_stated(found->second) < begin) drop(sequence);
    }
    Context& context = m_contexts[&sequence];
    if (!context.original) {
        context.original = &sequence;
        context.first = begin;
    }
    // After a preemption, or wrong drafts of a model with states, tokens are computed again.
    const size_t known = context.first + num_stated(context);
    if (known < end)
        context.states.insert(context.states.end(), states + (known - begin) * m_size,
                              states + num_tokens * m_size);
    for (size_t i = context.first + 1 + context.tokens.size(); i < end; ++i)
        context.tokens.push_back(sequence.tokens[i]);
    return context;
}

void HeadDrafter::confirm(Context& context) {
    context.num_cached = context.num_read;
    release_blocks(context, context.num_read);
    const SequenceState& original = *context.original;
    const size_t begin = context.first + 1;
    const size_t most = std::min(begin + context.tokens.size(), original.num_committed());
    size_t& known = context.num_known;
    while (begin + known < most && context.tokens[known] == original.tokens[begin + known]) ++known;
    context.tokens.resize(known);
    const size_t num_states = std::min(num_stated(context), known + 1) - context.num_read;
    context.states.resize(num_states * m_size);
}

size_t HeadDrafter::num_due(const Context& context) const {
    const SequenceState& original = *context.original;
    const size_t begin = context.first + 1;
    const size_t end = std::min(begin + num_stated(context), original.num_committed());
    return end - std::min(end, begin + context.num_read);
}

double HeadDrafter::time_to_extend(const std::vector<SequenceState*>& sequences) const {
    size_t rows = 0;
    for (const SequenceState* sequence : sequences) {
        const auto found = m_contexts.find(sequence);
        if (found != m_contexts.end())
            rows +=
                sequence->drafts->proposed.empty() ? std::min(num_due(found->second), most_due) : 1;
    }
    return m_times.level() * m_times.of(double(rows));
}

void HeadDrafter::extend(const std::vector<SequenceState*>& sequences) {
    m_readings.clear();
    for (const SequenceState* sequence : sequences) {
        const auto found = m_contexts.find(sequence);
        if (found == m_contexts.end()) continue;
        Context& context = found->second;
        const std::vector<Draft>& drafts = sequence->drafts->proposed;
        if (!drafts.empty()) {
            context.tokens.push_back(drafts.back().token);
            m_readings.push_back({&context, 1, true});
            continue;
        }
        confirm(context);
        // A token that a grammar forces has no hidden state before the next step.
        const size_t count = num_due(context);
        const size_t end = context.first + 1 + context.num_read + count;
        if (count > 0 && end == sequence->tokens.size())
            m_readings.push_back({&context, count, false});
    }
    run(/*asked=*/true);
}

void HeadDrafter::run(bool asked) {
    Batch batch;
    const size_t num_logits = asked ? 1 : 0;
    auto left = m_readings.begin();
    for (const Reading& reading : m_readings) {
        Context& context = *reading.context;
        if (!take_blocks(context, reading.num_tokens)) {
            drop(*context.original);
            continue;
        }
        std::vector<int64_t>& tokens = context.tokens;
        while (tokens.size() < context.num_cached + reading.num_tokens)
            tokens.push_back(context.original->tokens[context.first + 1 + tokens.size()]);
        batch.entries.push_back({&context, reading.num_tokens, num_logits, num_logits});
        batch.num_tokens += reading.num_tokens;
        *left++ = reading;
    }
    m_readings.erase(left, m_readings.end());
    if (batch.empty()) return;
    try {
        compute(batch, asked);
    } catch (...) {
        // What the run was to write is not in the cache.
        while (!m_contexts.empty()) drop(*m_contexts.begin()->first);
        throw;
    }
}

void HeadDrafter::compute(const Batch& batch, bool asked) {
    float* input = m_head->hidden_input(batch.num_tokens);
    for (const Reading& reading : m_readings) {
        const Context& context = *reading.context;
        input = std::copy_n((reading.is_guess ? context.guess : context.states).data(),
                            reading.num_tokens * m_size, input);
    }
    const auto begin = m_now();
    const Logits logits = m_head->run(batch, {});
    for (const Reading& reading : m_readings) {
        Context& context = *reading.context;
        context.num_cached += reading.num_tokens;
        if (reading.is_guess) continue;
        context.num_read = context.num_cached;
        const auto read = context.states.begin() + ptrdiff_t(reading.num_tokens * m_size);
        context.states.erase(context.states.begin(), read);
    }
    if (!asked) return;
    const float* guesses = m_head->hidden_states();
    const std::vector<int64_t>& tokens = m_head->drafted_tokens();
    for (size_t i = 0; i < m_readings.size(); ++i) {
        Context& context = *m_readings[i].context;
        context.guess.assign(guesses + i * m_size, guesses + (i + 1) * m_size);
        Draft draft = likeliest_draft(logits.row(i), logits.vocabulary);
        if (!tokens.empty()) draft.token = tokens[size_t(draft.token)];
        context.original->drafts->proposed.push_back(draft);
    }
    m_times.record(batch.num_tokens, double(microseconds_since(begin, m_now())));
}

bool HeadDrafter::take_blocks(Context& context, size_t num_tokens) {
    const size_t needed = blocks_for(context.num_cached + num_tokens, m_head->block_size());
    while (context.blocks.size() < needed && m_pool.num_free() > 0)
        context.blocks.push_back(m_pool.take());
    return context.blocks.size() >= needed;
}

void HeadDrafter::release_blocks(Context& context, size_t num_tokens) {
    const size_t needed = blocks_for(num_tokens, m_head->block_size());
    for (; context.blocks.size() > needed; context.blocks.pop_back())
        m_pool.release(context.blocks.back());
}

void HeadDrafter::drop(const SequenceState& sequence) {
    const auto found = m_contexts.find(&sequence);
    if (found == m_contexts.end()) return;
    release_blocks(found->second, 0);
    m_contexts.erase(found);
    if (m_contexts.empty() && m_pool.num_touched() * m_head->block_bytes() >= worth_while)
        for (const BlockRange& range : m_pool.forget_free()) m_head->cache().give_back(range);
}

void HeadDrafter::finish(const SequenceState& sequence) {
    m_repeats.finish(sequence);
    drop(sequence);
#ifndef NDEBUG
    m_pool.check_integrity();
#endif
}

}  // namespace pagewheel
