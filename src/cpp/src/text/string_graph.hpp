// Running the graphs of openvino-tokenizers.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/process_mark.hpp"
#include "openvino/core/model.hpp"
#include "openvino/runtime/core.hpp"
#include "openvino/runtime/infer_request.hpp"

namespace pagewheel {

/// A compiled string graph, run by one thread at a time. run() throws in a child that fork() made.
class StringGraph {
public:
    using Build = std::function<std::shared_ptr<ov::Model>()>;
    /// `properties` are the caller's.
    StringGraph(Build build, ov::AnyMap properties)
        : m_build(std::move(build)), m_properties(std::move(properties)) {}

    /// Compiles the graph now instead of at its first run.
    void compile(ov::Core& core);
    /// Output 0 for `inputs`; a tensor of its own.
    ov::Tensor run(ov::Core& core, const std::vector<ov::Tensor>& inputs);
    /// Those outputs, likewise.
    std::vector<ov::Tensor> run(ov::Core& core, const std::vector<ov::Tensor>& inputs,
                                const std::vector<size_t>& outputs);

private:
    void compile_once(ov::Core& core);

    const ProcessMark m_process;
    Build m_build;
    const ov::AnyMap m_properties;
    std::mutex m_mutex;
    ov::InferRequest m_request;
};

}  // namespace pagewheel
