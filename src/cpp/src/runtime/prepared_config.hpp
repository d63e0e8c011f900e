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
    /// Without its structured_output_config, whose grammar is in each request's rules.
    GenerationConfig config;
    TokenRules rules;          ///< breakers and lists
    StopStrings stop_strings;  ///< at the beginning of a text
};

/// Those of the latest requests, so that requests with the same config share one. Any thread may
/// ask.
class PreparedConfigs {
public:
    using Make = std::function<std::shared_ptr<const PreparedConfig>(GenerationConfig&&)>;

    /// What `make` makes of it, unless a request with such a config still lives.
    std::shared_ptr<const PreparedConfig> of(GenerationConfig&& config, const Make& make);

private:
    std::shared_ptr<const PreparedConfig> find(const GenerationConfig& config);

    std::mutex m_mutex;  // guards what follows
    std::array<std::weak_ptr<const PreparedConfig>, 8> m_latest;
    size_t m_next = 0;
};

}  // namespace pagewheel
