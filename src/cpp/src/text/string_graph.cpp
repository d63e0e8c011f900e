#include "text/string_graph.hpp"

#include "base/check.hpp"
#include "base/openvino_error.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel {

void StringGraph::compile(ov::Core& core) {
    const std::lock_guard lock(m_mutex);
    compile_once(core);
}

void StringGraph::compile_once(ov::Core& core) {
    if (m_request) return;
    // Single-threaded: these graphs are string operations, and threads would only be woken.
    ov::AnyMap properties{{"INFERENCE_NUM_THREADS", 1}, {"NUM_STREAMS", 1}};
    for (const auto& [key, value] : m_properties) properties[key] = value;
    try {
        m_request = core.compile_model(m_build(), "CPU", properties).create_infer_request();
    } catch (const ov::Exception& error) {
        refuse_argument(ParameterName("properties", ""),
                        "the tokenizer cannot run with these properties: ", reason(error));
    }
}

ov::Tensor StringGraph::run(ov::Core& core, const std::vector<ov::Tensor>& inputs) {
    return run(core, inputs, {0}).front();
}

std::vector<ov::Tensor> StringGraph::run(ov::Core& core, const std::vector<ov::Tensor>& inputs,
                                         const std::vector<size_t>& outputs) {
    m_process.check("tokenizer");
    const std::lock_guard lock(m_mutex);
    compile_once(core);
    for (size_t i = 0; i < inputs.size(); ++i) m_request.set_input_tensor(i, inputs[i]);
    m_request.start_async();  // with one thread, infer() can swallow a node's exception
    m_request.wait();
    std::vector<ov::Tensor> copies;
    for (const size_t output : outputs) {
        const ov::Tensor shared = m_request.get_output_tensor(output);
        shared.copy_to(copies.emplace_back(shared.get_element_type(), shared.get_shape()));
    }
    return copies;
}

}  // namespace pagewheel
