// A config as requests use it, and what is made of it once.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>

#include "pagewheel/generation_config.hpp"
#include "sampling/token_rules.hpp"
#include "text/stop_strings.hpp"

namespace pagewheel {

/// Checked, and constant. Requests share it, and their sequences and beams what it has.
struct PreparedConfig {
    /// Without what each request has of its own: structured_output_config, whose grammar is in the
    /// request's rules, timeout, rng_seed, priority and cache_salt. So these keep nobody from
    /// sharing the rest.
    GenerationConfig config;
    TokenRules rules;          ///< breakers and lists
    StopStrings stop_strings;  ///< at the beginning of a text
};

/// Those of the latest requests, so that requests with the same config share one, and those with
/// the same stop strings share their automaton. Any thread may ask.
class PreparedConfigs {
public:
    /// Prepares a config. `like` has the same stop strings, or is null.
    using Make = std::function<std::shared_ptr<const PreparedConfig>(GenerationConfig&&,
                                                                     const PreparedConfig* like)>;

    /// What `make` makes of it, unless a request with such a config still lives.
    std::shared_ptr<const PreparedConfig> of(GenerationConfig&& config, const Make& make);

private:
    /// One for whose config `is_wanted` holds, that a request still has; else null.
    template <class IsWanted>
    std::shared_ptr<const PreparedConfig> find(IsWanted&& is_wanted);

    std::mutex m_mutex;  // guards what follows
    std::array<std::weak_ptr<const PreparedConfig>, 8> m_latest;
    size_t m_next = 0;
};

}  // namespace pagewheel
