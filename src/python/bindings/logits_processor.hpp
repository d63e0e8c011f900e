// Callables as logits processors. All of it needs the GIL.
#pragma once

#include <pybind11/pybind11.h>

#include "pagewheel/generation_config.hpp"

namespace pagewheel::python {

namespace py = pybind11;

/// GenerationConfig::logits_processors from a list of callables, or None for none.
void set_logits_processors(GenerationConfig& config, const py::object& callables);
/// The callables again.
py::list get_logits_processors(const GenerationConfig& config);

}  // namespace pagewheel::python
