#include "runtime/prefixes.hpp"

#include "base/check.hpp"
#include "cache/cache_size.hpp"
#include "cache/prefix_file.hpp"

namespace pagewheel {

size_t Prefixes::num_tokens() const {
    size_t count = 0;
    for (const auto& [salt, tokens] : num_tokens_by_salt()) count += tokens;
    return count;
}

std::map<std::string, size_t> Prefixes::num_tokens_by_salt() const {
    std::map<std::string, size_t> counts;
    m_scheduler.store().tree().visit(
        [&](const PrefixKey& key, NodeId, BlockId, const std::vector<int64_t>& tokens) {
            counts[key.salt] += tokens.size();
        });
    return counts;
}

bool Prefixes::has(const PrefixKey& key, const std::vector<int64_t>& tokens) const {
    PrefixMatch match;
    m_scheduler.store().tree().match(key, tokens.data(), tokens.size(), match);
    return match.num_tokens == tokens.size();
}

void Prefixes::check_room(size_t num_tokens, size_t num_pinned) const {
    const size_t num_blocks = m_scheduler.pool().size();
    check_argument(2 * num_pinned <= num_blocks, "a prefix of ", num_tokens,
                   " tokens cannot be pinned: ", num_pinned, " of ", num_blocks,
                   " blocks would be, and half of them may");
    const size_t most_evicting = m_eviction ? m_eviction->most_blocks() : 0;
    check_argument(num_blocks - num_pinned >= most_evicting, "a prefix of ", num_tokens,
                   " tokens cannot be pinned: it would leave ", num_blocks - num_pinned,
                   " blocks, and eviction needs ", most_evicting);
    const size_t room = (num_blocks - num_pinned) * m_model.block_size();
    for (const auto& request : m_requests.all())
        check_argument(request->max_tokens <= room, "a prefix of ", num_tokens,
                       " tokens cannot be pinned: it would leave room for ", room, " tokens, and ",
                       request->name(), " may need ", request->max_tokens);
}

size_t Prefixes::pin(const PrefixKey& key, const std::vector<int64_t>& tokens) {
    check_room(tokens.size(),
               m_scheduler.pins().num_blocks() + blocks_for(tokens.size(), m_model.block_size()));
    return m_scheduler.pins().pin(key, tokens);
}

bool Prefixes::unpin(const PrefixKey& key, const std::vector<int64_t>& tokens) {
    return m_scheduler.pins().unpin(key, tokens);
}

void Prefixes::clear(const std::optional<std::set<std::string>>& salts) {
    m_scheduler.clear_prefixes(salts);
    m_scheduler.give_back_unused(m_model.cache());
}

void Prefixes::save(const std::filesystem::path& path, const PrefixSelection& selection) const {
    save_prefixes(path, m_model.cache_description(), m_scheduler.store().tree(), m_model.cache(),
                  selection);
}

size_t Prefixes::load(const std::filesystem::path& path) {
    return load_prefixes(path, m_model.cache_description(), m_scheduler.store(), m_model.cache());
}

}  // namespace pagewheel
