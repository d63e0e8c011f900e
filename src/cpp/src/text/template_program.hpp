// Rendering chat templates by the program pagewheel-template, within limits.
#pragma once

#include <filesystem>
#include <string>

#include "pagewheel/tokenizer.hpp"

namespace pagewheel {

/// $PAGEWHEEL_TEMPLATE_PROGRAM, else beside this library; PATH is not searched. It may be missing.
std::filesystem::path find_template_program();

/// The prompt, from a process of its own, which has ten seconds, 512 MB of memory and 16 million
/// characters. Called by every thread that renders; at most four processes run at once, other
/// threads wait for their turn.
///
/// Throws InvalidArgument that begins with "chat template" for whatever the template does
/// wrong, Error where the program is missing or may not limit itself.
std::string render_by_program(const ChatTemplateInputs& inputs);

}  // namespace pagewheel
