// What a pipeline keeps of the prompts it has seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "pagewheel/continuous_batching_pipeline.hpp"
#include "pagewheel/prefix_selection.hpp"
#include "pagewheel/visibility.hpp"

namespace pagewheel {

/// The prefix cache of a pipeline that was made with SchedulerConfig::enable_prefix_caching; else
/// every method throws InvalidArgument. Its methods may be called from any thread and wait
/// for the step that is under way.
class PAGEWHEEL_API PrefixCache {
public:
    explicit PrefixCache(const ContinuousBatchingPipeline& pipeline) : m_pipeline(pipeline) {}

    /// Tokens that are cached.
    size_t num_tokens() const;
    /// num_tokens() by cache_salt; "" stands for requests without one.
    std::map<std::string, size_t> num_tokens_by_salt() const;
    /// Computes the prompt if it is not cached, and keeps it until unpin(); how many of its tokens,
    /// which is all of them. Throws InvalidArgument if more than half of the blocks would
    /// be pinned, or a request that was accepted could not be served any more.
    size_t pin(const std::vector<int64_t>& prompt, const std::string& salt = {});
    /// False if exactly this prompt was not pinned.
    bool unpin(const std::vector<int64_t>& prompt, const std::string& salt = {});
    /// Forgets all that is not pinned, or of that what requests with one of these salts have
    /// computed.
    void clear(const std::optional<std::set<std::string>>& salts = std::nullopt);

    /// Writes what is selected to a file. Throws Error if that is not possible.
    void save(const std::filesystem::path& path, const PrefixSelection& selection = {}) const;
    /// Adds what a file has, while there are free blocks; how many tokens. Throws
    /// InvalidArgument if it was saved with another model, device, cache format or version
    /// of OpenVINO, Error if it is no such file, or damaged.
    size_t load(const std::filesystem::path& path);

private:
    ContinuousBatchingPipeline m_pipeline;  // the same one, not a copy
};

}  // namespace pagewheel
