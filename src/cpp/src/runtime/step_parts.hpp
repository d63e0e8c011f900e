// What choosing tokens acts upon.
#pragma once

#include "runtime/admission.hpp"
#include "runtime/eviction_manager.hpp"
#include "runtime/grammar_ahead.hpp"
#include "runtime/output.hpp"
#include "runtime/requests.hpp"
#include "scheduling/scheduler.hpp"

namespace pagewheel {

/// Parts of the engine. Under the step's lock.
struct StepParts {
    Scheduler& scheduler;
    const EvictionManager* eviction;  ///< null: nothing is evicted
    const Admission& admission;
    Requests& requests;
    Output& output;
    GrammarAhead& grammars;
};

}  // namespace pagewheel
