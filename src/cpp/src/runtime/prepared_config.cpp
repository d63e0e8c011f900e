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

template <class IsWanted>
std::shared_ptr<const PreparedConfig> PreparedConfigs::find(IsWanted&& is_wanted) {
    const std::lock_guard lock(m_mutex);
    for (const auto& latest : m_latest)
        if (auto prepared = latest.lock(); prepared && is_wanted(prepared->config)) return prepared;
    return nullptr;
}

std::shared_ptr<const PreparedConfig> PreparedConfigs::of(GenerationConfig&& config,
                                                          const Make& make) {
    if (auto found = find([&](const auto& other) { return is_same(other, config); })) return found;
    const auto like = find([&](const auto& other) {  //
        return other.stop_strings == config.stop_strings;
    });
    auto made = make(std::move(config), like.get());  // without the lock: it may take long
    const std::lock_guard lock(m_mutex);
    m_latest[m_next++ % m_latest.size()] = made;
    return made;
}

}  // namespace pagewheel
