// What users see of the whole cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "pagewheel/cache_view.hpp"
#include "runtime/requests.hpp"
#include "scheduling/scheduler.hpp"

namespace pagewheel {

/// Under the step's lock. At most `most_sequences` sequences. `evicted_of` names the request whose
/// first sequence's kept tokens are asked for. All but the blocks' number and num_steps is bounded
/// by the arguments and by what one sequence holds.
CacheView view_cache(const Scheduler& scheduler, const Requests& requests, size_t most_sequences,
                     std::optional<uint64_t> evicted_of);

}  // namespace pagewheel
