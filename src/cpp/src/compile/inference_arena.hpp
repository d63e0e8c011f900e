// The threads that a compiled model runs on, before there is one.
#pragma once

#include <functional>
#include <memory>

#include "openvino/core/any.hpp"
#include "openvino/runtime/core.hpp"

namespace pagewheel {

/// OpenVINO's threads on CPU for some properties: how many, on which processors, and in which order
/// they stand in their arena. Found by compiling a graph of one node, whose threads OpenVINO gives
/// to the next model of the same properties.
class InferenceArena {
public:
    /// Throws ov::Exception where OpenVINO refuses the properties.
    InferenceArena(ov::Core& core, const ov::AnyMap& properties);

    size_t num_threads() const { return m_num_threads; }
    /// The fewest, where there are several streams.
    size_t threads_of_stream() const;
    /// Calls it on the arena's first thread and waits. Throws what it throws.
    void run(const std::function<void()>& function);

private:
    std::shared_ptr<std::function<void()>> m_called;
    ov::CompiledModel m_model;
    size_t m_num_threads;
};

}  // namespace pagewheel
