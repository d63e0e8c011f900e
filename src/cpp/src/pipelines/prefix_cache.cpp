#include "pagewheel/prefix_cache.hpp"

#include "base/check.hpp"
#include "pagewheel/errors.hpp"
#include "pipelines/pipeline_impl.hpp"

namespace pagewheel {
namespace {

// Other requests may evict the prompt between its computation and the pin.
constexpr int max_attempts = 3;

}  // namespace

PrefixCache ContinuousBatchingPipeline::get_prefix_cache() const {
    return PrefixCache(*this);
}

size_t PrefixCache::num_tokens() const {
    return m_pipeline.m_impl->engine().prefixes().num_tokens();
}

std::map<std::string, size_t> PrefixCache::num_tokens_by_salt() const {
    return m_pipeline.m_impl->engine().prefixes().num_tokens_by_salt();
}

size_t PrefixCache::pin(const std::vector<int64_t>& prompt, const std::string& salt) {
    Engine& engine = m_pipeline.m_impl->engine();
    check_argument(!prompt.empty(), ParameterName("prompt", "the prompt"),
                   " to be pinned is empty");
    GenerationConfig config;
    config.max_new_tokens = 1;
    config.ignore_eos = true;
    config.cache_salt = salt;
    const auto is_pinned = [&] {
        auto prefixes = engine.prefixes();
        return prefixes.has({salt, 0}, prompt) && prefixes.pin({salt, 0}, prompt) == prompt.size();
    };
    for (int attempt = 0; attempt < max_attempts; ++attempt) {
        if (is_pinned()) return prompt.size();
        m_pipeline.generate(std::vector<std::vector<int64_t>>{prompt},
                            std::vector<GenerationConfig>{config});
    }
    throw Error(
        concat("a prompt of ", prompt.size(), " tokens cannot be pinned: other requests evict it"));
}

bool PrefixCache::unpin(const std::vector<int64_t>& prompt, const std::string& salt) {
    return m_pipeline.m_impl->engine().prefixes().unpin({salt, 0}, prompt);
}

void PrefixCache::clear(const std::optional<std::set<std::string>>& salts) {
    m_pipeline.m_impl->engine().prefixes().clear(salts);
}

void PrefixCache::save(const std::filesystem::path& path, const PrefixSelection& selection) const {
    m_pipeline.m_impl->engine().prefixes().save(path, selection);
}

size_t PrefixCache::load(const std::filesystem::path& path) {
    return m_pipeline.m_impl->engine().prefixes().load(path);
}

}  // namespace pagewheel
