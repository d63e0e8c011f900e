#include "compile/inference_arena.hpp"

#include <algorithm>
#include <exception>

#include "openvino/op/op.hpp"
#include "openvino/op/parameter.hpp"
#include "openvino/op/result.hpp"
#include "openvino/runtime/properties.hpp"

namespace pagewheel {
namespace {

/// Gives its input, after a call.
class Call : public ov::op::Op {
public:
    OPENVINO_OP("Call", "pagewheel")

    Call(const ov::Output<ov::Node>& input, std::shared_ptr<std::function<void()>> called)
        : Op({input}), m_called(std::move(called)) {
        constructor_validate_and_infer_types();
    }
    void validate_and_infer_types() override {
        set_output_type(0, get_input_element_type(0), get_input_partial_shape(0));
    }
    std::shared_ptr<ov::Node> clone_with_new_inputs(const ov::OutputVector& inputs) const override {
        return std::make_shared<Call>(inputs.at(0), m_called);
    }
    bool visit_attributes(ov::AttributeVisitor&) override { return true; }
    bool has_evaluate() const override { return true; }
    bool evaluate(ov::TensorVector& outputs, const ov::TensorVector& inputs) const override {
        inputs[0].copy_to(outputs[0]);
        if (*m_called) (*m_called)();
        return true;
    }

private:
    std::shared_ptr<std::function<void()>> m_called;
};

/// Those that decide about threads.
ov::AnyMap thread_properties(const ov::AnyMap& properties) {
    ov::AnyMap chosen;
    for (const char* name :
         {ov::inference_num_threads.name(), ov::num_streams.name(),
          ov::hint::enable_cpu_pinning.name(), ov::hint::enable_cpu_reservation.name(),
          ov::hint::enable_hyper_threading.name(), ov::hint::scheduling_core_type.name(),
          ov::hint::model_distribution_policy.name(), ov::hint::performance_mode.name(),
          ov::hint::num_requests.name()}) {
        const auto found = properties.find(name);
        if (found != properties.end()) chosen.insert(*found);
    }
    return chosen;
}

}  // namespace

InferenceArena::InferenceArena(ov::Core& core, const ov::AnyMap& properties)
    : m_called(std::make_shared<std::function<void()>>()) {
    const auto input =
        std::make_shared<ov::op::v0::Parameter>(ov::element::f32, ov::PartialShape{1});
    const auto call = std::make_shared<Call>(input, m_called);
    const auto model = std::make_shared<ov::Model>(
        ov::ResultVector{std::make_shared<ov::op::v0::Result>(call)}, ov::ParameterVector{input});
    m_model = core.compile_model(model, "CPU", thread_properties(properties));
    m_num_threads = size_t(m_model.get_property(ov::inference_num_threads));
}

size_t InferenceArena::threads_of_stream() const {
    const int streams = m_model.get_property(ov::num_streams);
    return m_num_threads / size_t(std::max(1, streams));
}

void InferenceArena::run(const std::function<void()>& function) {
    std::exception_ptr error;
    *m_called = [&] {
        try {
            function();
        } catch (...) {
            error = std::current_exception();
        }
    };
    ov::InferRequest request = m_model.create_infer_request();
    request.start_async();
    request.wait();
    *m_called = nullptr;
    if (error) std::rethrow_exception(error);
}

}  // namespace pagewheel
