// What the contents of a model's cache depend on.
#pragma once

#include <string>

#include "compile/compile_model.hpp"

namespace pagewheel {

/// The same text for two models only if blocks of one can be put into the cache of the other:
/// model, device, OpenVINO, precision, layout. Reads the weights.
std::string describe_cache(const CompiledGraph& graph);

}  // namespace pagewheel
