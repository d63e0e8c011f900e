#include "runtime/prepared_config.hpp"

#include <utility>

namespace pagewheel {
namespace {

/// Whether their parameters and processors are the same. Neither has a grammar.
bool is_same(const GenerationConfig& a, const GenerationConfig& b) {
    return
#define PAGEWHEEL_PARAMETER(type, name, initial, condition, allowed, help) a.name == b.name&&
#include "pagewheel/generation_parameters.def"
        a.logits_processors == b.logits_processors;
}

}  // namespace

std::shared_ptr<const PreparedConfig> PreparedConfigs::find(const GenerationConfig& config) {
    for (const auto& latest : m_latest)
        if (auto prepared = latest.lock(); prepared && is_same(prepared->config, config))
            return prepared;
    return nullptr;
}

std::shared_ptr<const PreparedConfig> PreparedConfigs::of(GenerationConfig&& config,
                                                          const Make& make) {
    {
        const std::lock_guard lock(m_mutex);
        if (auto found = find(config)) return found;
    }
    auto made = make(std::move(config));  // without the lock: it may take long
    const std::lock_guard lock(m_mutex);
    m_latest[m_next++ % m_latest.size()] = made;
    return made;
}

}  // namespace pagewheel
