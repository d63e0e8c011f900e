// The filters of sampling, as a GenerationConfig asks for them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pagewheel/generation_config.hpp"
#include "sampling/candidate_filter.hpp"

namespace pagewheel {

// make_<name>(config) for each filter in the table of parameters; nullptr where the config does not
// ask for it. Each is defined in a file of its own.
#define PAGEWHEEL_PARAMETER(type, name, initial, condition, allowed, help)
#define PAGEWHEEL_PROCESSOR PAGEWHEEL_PARAMETER
#define PAGEWHEEL_FILTER(type, name, initial, condition, allowed, help) \
    std::unique_ptr<CandidateFilter> make_##name(const GenerationConfig& config);
#include "pagewheel/generation_parameters.def"

struct FilterKind {
    std::string parameter;  ///< of GenerationConfig
    std::unique_ptr<CandidateFilter> (*make)(const GenerationConfig&);
};

/// All there are, in the order in which they are applied.
const std::vector<FilterKind>& candidate_filters();

}  // namespace pagewheel
