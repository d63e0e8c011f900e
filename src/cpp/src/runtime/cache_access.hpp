// What users do with the prefix cache, and see of the whole cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "pagewheel/cache_view.hpp"
#include "pagewheel/prefix_selection.hpp"
#include "runner/model.hpp"
#include "runtime/eviction_manager.hpp"
#include "runtime/requests.hpp"
#include "scheduling/scheduler.hpp"

namespace pagewheel {

/// The prefix cache, as PrefixCache has it. Under the step's lock.
class Prefixes {
public:
    /// `eviction` null: nothing is evicted.
    Prefixes(Model& model, Scheduler& scheduler, const EvictionManager* eviction,
             const Requests& requests)
        : m_model(model), m_scheduler(scheduler), m_eviction(eviction), m_requests(requests) {}

    size_t num_tokens() const;
    std::map<std::string, size_t> num_tokens_by_salt() const;
    bool has(const PrefixKey& key, const std::vector<int64_t>& tokens) const;
    /// Pins the tokens if all of them are cached; how many are, from the first on.
    size_t pin(const PrefixKey& key, const std::vector<int64_t>& tokens);
    bool unpin(const PrefixKey& key, const std::vector<int64_t>& tokens);
    void clear(const std::optional<std::set<std::string>>& salts);
    void save(const std::filesystem::path& path, const PrefixSelection& selection) const;
    size_t load(const std::filesystem::path& path);

private:
    /// Throws InvalidArgument if one of the requests would not fit beside `num_pinned`
    /// blocks.
    void check_room(size_t num_tokens, size_t num_pinned) const;

    Model& m_model;
    Scheduler& m_scheduler;
    const EvictionManager* const m_eviction;
    const Requests& m_requests;
};

/// Under the step's lock. At most `most_sequences` sequences. `evicted_of` names the request whose
/// first sequence's kept tokens are asked for. All but the blocks' number and num_steps is bounded
/// by the arguments and by what one sequence holds.
CacheView view_cache(const Scheduler& scheduler, const Requests& requests, size_t most_sequences,
                     std::optional<uint64_t> evicted_of);

}  // namespace pagewheel
