// How many threads a model on CPU gets.
#pragma once

#include <optional>
#include <string>

#include "compile/compile_options.hpp"
#include "openvino/core/any.hpp"
#include "openvino/runtime/core.hpp"

namespace pagewheel {

struct InferenceThreads {
    size_t count = 0;
    std::string why;
    /// What OpenVINO gets besides the options' own properties.
    ov::AnyMap properties;
};

/// What the options ask for. Without that OpenVINO's default, a thread for each physical core of
/// one socket that the process may use; or fewer, where `quota` (cpu_quota()) is smaller, which
/// OpenVINO does not know. Threads that a quota allows are not bound to processors: OpenVINO would
/// bind those of each container to the machine's first ones. Throws ov::Exception for properties
/// that OpenVINO refuses.
InferenceThreads choose_threads(ov::Core& core, const CompileOptions& options,
                                std::optional<double> quota);

}  // namespace pagewheel
