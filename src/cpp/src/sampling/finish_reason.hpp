// What ends a sequence.
#pragma once

#include <cstdint>

#include "pagewheel/generation_config.hpp"
#include "pagewheel/generation_handle.hpp"

namespace pagewheel {

/// With `token`, its latest. `is_full`: it may have no more. `stops_text()` says whether its text
/// has a stop string; it is asked only if the config names some, and nothing else ends it by stop.
template <class StopsText>
GenerationFinishReason finish_reason(const GenerationConfig& config, int64_t token, bool is_full,
                                     StopsText&& stops_text) {
    using Reason = GenerationFinishReason;
    if (!config.ignore_eos && config.is_stop_token(token)) return Reason::STOP;
    if (!config.stop_strings.empty() && stops_text()) return Reason::STOP;
    return is_full ? Reason::LENGTH : Reason::NONE;
}

}  // namespace pagewheel
