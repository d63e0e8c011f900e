#include "runtime/grammar_ahead.hpp"

#include <system_error>

namespace pagewheel {
namespace {

/// The grammar whose mask the entry's next token needs; null if none.
GrammarRule* grammar_of(const BatchEntry& entry) {
    // Of drafts, each mask needs the token before it, which is not chosen yet.
    if (!entry.samples() || entry.sequence->num_drafted > 0) return nullptr;
    Generation& generation = *entry.sequence->owner;
    Request& request = *generation.request;
    if (!request.rules.grammar) return nullptr;
    if (!request.config.is_beam_search()) return generation.sampler.grammar();
    return request.beams ? request.beams->grammar(generation.index) : nullptr;
}

}  // namespace

GrammarAhead::~GrammarAhead() {
    {
        const std::lock_guard lock(m_mutex);
        m_ends = true;
    }
    m_has_work.notify_all();
    for (std::thread& thread : m_threads) thread.join();
}

void GrammarAhead::begin(const Batch& batch) {
    m_next.clear();
    for (const BatchEntry& entry : batch.entries)
        if (GrammarRule* grammar = grammar_of(entry))
            m_next.push_back({grammar, {entry.sequence->tokens, entry.sequence->prompt_length}});
    const size_t count = m_next.size();
    if (count == 0) return;
    if (m_threads.empty()) start_threads();
    {
        const std::lock_guard lock(m_mutex);
        m_tasks.swap(m_next);
        m_num_taken = m_num_done = 0;
    }
    if (count == 1)
        m_has_work.notify_one();
    else
        m_has_work.notify_all();
}

void GrammarAhead::start_threads() {
    try {
        m_threads.reserve(m_num_threads);
        while (m_threads.size() < m_num_threads) m_threads.emplace_back([this] { serve(); });
    } catch (const std::system_error&) {  // finish() does what those there are do not
    }
}

void GrammarAhead::finish() {
    std::unique_lock lock(m_mutex);
    while (do_next(lock)) {
    }
    m_is_done.wait(lock, [&] { return m_num_done == m_tasks.size(); });
}

void GrammarAhead::serve() {
    std::unique_lock lock(m_mutex);
    while (!m_ends)
        if (!do_next(lock)) m_has_work.wait(lock);
}

bool GrammarAhead::do_next(std::unique_lock<std::mutex>& lock) {
    if (m_num_taken == m_tasks.size()) return false;
    const Task task = m_tasks[m_num_taken++];
    lock.unlock();
    try {
        task.grammar->follow(task.history);
    } catch (...) {  // thrown again where the mask is asked for
    }
    lock.lock();
    if (++m_num_done == m_tasks.size()) m_is_done.notify_one();
    return true;
}

}  // namespace pagewheel
