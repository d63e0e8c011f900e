// What users do with the prefix cache.
#include "cache/cache_size.hpp"
#include "cache/prefix_file.hpp"
#include "check.hpp"
#include "runtime/engine.hpp"

namespace pagewheel {

Engine::StepLock Engine::lock_prefixes() {
    check_argument(m_has_prefixes,
                   "the pipeline has no prefix cache: enable_prefix_caching is false");
    return StepLock(*this);
}

size_t Engine::num_prefix_tokens() {
    const StepLock lock = lock_prefixes();
    size_t count = 0;
    m_scheduler.store().tree().visit(
        [&](const PrefixKey&, NodeId, BlockId, const std::vector<int64_t>& tokens) {
            count += tokens.size();
        });
    return count;
}

bool Engine::has_prefix(const PrefixKey& key, const std::vector<int64_t>& tokens) {
    const StepLock lock = lock_prefixes();
    PrefixMatch match;
    m_scheduler.store().tree().match(key, tokens.data(), tokens.size(), match);
    return match.num_tokens == tokens.size();
}

size_t Engine::pin_prefix(const PrefixKey& key, const std::vector<int64_t>& tokens) {
    const StepLock lock = lock_prefixes();
    accept_submitted();
    const size_t num_blocks = m_scheduler.pool().size(), block_size = m_model->block_size(),
                 num_pinned =
                     m_scheduler.pins().num_blocks() + blocks_for(tokens.size(), block_size);
    check_argument(2 * num_pinned <= num_blocks, "a prefix of ", tokens.size(),
                   " tokens cannot be pinned: ", num_pinned, " of ", num_blocks,
                   " blocks would be, and half of them may");
    const size_t most_evicting = m_keeper ? m_keeper->most_blocks() : 0;
    check_argument(num_blocks - num_pinned >= most_evicting, "a prefix of ", tokens.size(),
                   " tokens cannot be pinned: it would leave ", num_blocks - num_pinned,
                   " blocks, and eviction needs ", most_evicting);
    const size_t room = (num_blocks - num_pinned) * block_size;
    for (const auto& request : m_requests)
        check_argument(request->max_tokens <= room, "a prefix of ", tokens.size(),
                       " tokens cannot be pinned: it would leave room for ", room, " tokens, and ",
                       request->name(), " may need ", request->max_tokens);
    const size_t count = m_scheduler.pins().pin(key, tokens);
    m_max_tokens = m_scheduler.max_tokens();
    count_blocks();
    return count;
}

bool Engine::unpin_prefix(const PrefixKey& key, const std::vector<int64_t>& tokens) {
    const StepLock lock = lock_prefixes();
    const bool was_pinned = m_scheduler.pins().unpin(key, tokens);
    m_max_tokens = m_scheduler.max_tokens();
    count_blocks();
    return was_pinned;
}

void Engine::clear_prefixes() {
    const StepLock lock = lock_prefixes();
    m_scheduler.clear_prefixes();
    give_back_memory();
    count_blocks();
}

void Engine::save_prefixes(const std::filesystem::path& path) {
    const StepLock lock = lock_prefixes();
    pagewheel::save_prefixes(path, m_model->cache_description(), m_scheduler.store().tree(),
                             m_model->cache());
}

size_t Engine::load_prefixes(const std::filesystem::path& path) {
    const StepLock lock = lock_prefixes();
    const size_t count = pagewheel::load_prefixes(path, m_model->cache_description(),
                                                  m_scheduler.store(), m_model->cache());
    count_blocks();
    return count;
}

}  // namespace pagewheel
