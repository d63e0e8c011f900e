// How many threads a model on CPU gets, and which; models that need more than one.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "graph/compile_options.hpp"
#include "openvino/core/any.hpp"
#include "openvino/core/model.hpp"
#include "openvino/runtime/core.hpp"

namespace pagewheel {

/// The least quota, in processors, of the control groups (Linux cgroups, versions 1 and 2) that the
/// process is in: 1.5 is 150 ms of time in each 100 ms. Nothing where none is set or can be read.
/// `root` is the folder that /proc and /sys and what is mounted are looked for in.
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

/// Memory nodes of the machine; 1 where that cannot be read.
size_t num_memory_nodes(const std::filesystem::path& root = "/");

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

/// Whether some MatMul may be the last of a gated MLP that OpenVINO fuses on AMX: its constant
/// weights are real numbers or i8, and an activation function lies between it and the MatMuls
/// before it. OpenVINO's own pattern is narrower.
bool has_gated_mlp(const ov::Model& model);

/// Whether compiling the model with these properties, which are OpenVINO's, would end the process:
/// OpenVINO divides a fused MLP's last matrix among half the threads of a stream, rounded down
/// (docs/openvino.md).
bool divides_by_no_threads(ov::Core& core, const ov::Model& model, const CompileOptions& options,
                           const ov::AnyMap& properties);

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
