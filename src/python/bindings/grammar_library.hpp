// Where the library of the installed package llguidance is.
#pragma once

#include "bindings.hpp"
#include "pagewheel/structured_output.hpp"

namespace pagewheel::python {

/// Tells the core where it is; later calls do nothing. Without the package the first grammar's
/// error says what to install.
void find_grammar_library();

/// A StructuredOutputConfig, or a part of a compound grammar.
StructuredOutputConfig to_structured_output(const py::handle& value);

}  // namespace pagewheel::python
