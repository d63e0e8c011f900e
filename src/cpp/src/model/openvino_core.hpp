// OpenVINO's entry, one for the process.
#pragma once

#include <filesystem>

#include "openvino/runtime/core.hpp"

namespace pagewheel {

/// The core that all models and tokenizers are compiled with. It is never destroyed: each CPU
/// plugin puts a signal stack of its own in place and, when it goes, the one that it found. Of two
/// that go in the order they came, the second one thus leaves a stack that was freed, and the next
/// signal (Ctrl-C) ends the program. Throws Error in a child that fork() made of a process with a
/// core.
ov::Core& openvino_core();
/// openvino_core() with this extension library added.
ov::Core& openvino_core_with(const std::filesystem::path& extension);

}  // namespace pagewheel
