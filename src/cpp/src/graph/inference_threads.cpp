#include "graph/inference_threads.hpp"

#include <algorithm>
#include <cmath>
#include <exception>
#include <fstream>
#include <set>
#include <string>

#include "base/check.hpp"
#include "base/process.hpp"
#include "openvino/op/constant.hpp"
#include "openvino/op/matmul.hpp"
#include "openvino/op/op.hpp"
#include "openvino/op/parameter.hpp"
#include "openvino/op/result.hpp"
#include "openvino/runtime/properties.hpp"

namespace pagewheel {
namespace {

namespace fs = std::filesystem;

/// Both numbers in microseconds, in two files or, of version 2, in one.
std::optional<double> quota_of(const ControlGroup& group) {
    double quota = 0, period = 0;
    if (group.version_2) {
        std::ifstream(group.folder / "cpu.max") >> quota >> period;  // "max" is no number: 0
    } else {
        std::ifstream(group.folder / "cpu.cfs_quota_us") >> quota;  // -1: none
        std::ifstream(group.folder / "cpu.cfs_period_us") >> period;
    }
    if (quota <= 0 || period <= 0) return {};
    return quota / period;
}

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

constexpr int longest_activation = 10;  // in nodes, as many as GELU takes where it is written out

/// Looks at each node once, level by level, and not past a MatMul.
bool depends_on_activation(const ov::Node& node) {
    static const std::set<std::string> functions{"Swish", "Gelu", "Sigmoid", "Tanh", "Erf"};
    std::set<const ov::Node*> seen{&node}, level = seen;
    for (int depth = 0; depth <= longest_activation && !level.empty(); ++depth) {
        std::set<const ov::Node*> inputs;
        for (const ov::Node* each : level) {
            if (functions.count(each->get_type_name()) != 0) return true;
            if (ov::is_type<ov::op::v0::MatMul>(each)) continue;
            for (size_t i = 0; i < each->get_input_size(); ++i)
                if (const ov::Node* input = each->get_input_node_ptr(i); seen.insert(input).second)
                    inputs.insert(input);
        }
        level = std::move(inputs);
    }
    return false;
}

/// Follows first inputs to the node that has none: decompression keeps its constant there.
bool has_plain_weights(const ov::Node& matmul) {
    const ov::Node* node = matmul.get_input_node_ptr(1);
    while (node->get_input_size() > 0) node = node->get_input_node_ptr(0);
    const ov::element::Type type = node->get_output_element_type(0);
    return ov::is_type<ov::op::v0::Constant>(node) && (type.is_real() || type == ov::element::i8);
}

bool in_f32(const CompileOptions& options, const ov::AnyMap& properties) {
    const auto found = properties.find(ov::hint::inference_precision.name());
    if (found != properties.end()) return found->second.as<ov::element::Type>() == ov::element::f32;
    const auto mode = options.openvino.find(ov::hint::execution_mode.name());
    return mode != options.openvino.end() && mode->second.as<std::string>() == "ACCURACY";
}

/// To the nearest number. Two threads in 1.5 processors, which are stopped for a quarter of the
/// time, are faster than one; in 1.4 they are not (docs/scaling.md).
size_t threads_of(double quota) {
    return std::max<size_t>(1, size_t(std::lround(quota)));
}

}  // namespace

std::optional<double> cpu_quota(const fs::path& root) {
    std::optional<double> least;
    for (const ControlGroup& group : control_groups("cpu", root))
        if (const auto quota = quota_of(group)) least = std::min(least.value_or(*quota), *quota);
    return least;
}

size_t num_memory_nodes(const fs::path& root) {
    size_t nodes = 0;
    std::error_code failed;
    for (const auto& entry : fs::directory_iterator(root / "sys/devices/system/node", failed)) {
        const std::string name = entry.path().filename().string();
        nodes +=
            name.compare(0, 4, "node") == 0 && name.size() > 4 &&
            std::all_of(name.begin() + 4, name.end(), [](char c) { return c >= '0' && c <= '9'; });
    }
    return std::max<size_t>(nodes, 1);
}

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

bool has_gated_mlp(const ov::Model& model) {
    const auto nodes = model.get_ops();
    return std::any_of(nodes.begin(), nodes.end(), [](const auto& node) {
        return ov::is_type<ov::op::v0::MatMul>(node) && has_plain_weights(*node) &&
               depends_on_activation(*node->get_input_node_ptr(0));
    });
}

bool divides_by_no_threads(ov::Core& core, const ov::Model& model, const CompileOptions& options,
                           const ov::AnyMap& properties) {
    if (!options.on_cpu || !options.processor.has(CpuFeature::amx_bf16)) return false;
    try {
        return !in_f32(options, properties) && has_gated_mlp(model) &&
               InferenceArena(core, properties).threads_of_stream() < 2;
    } catch (const ov::Exception&) {  // refused when the model is compiled, which says more
        return false;
    }
}

InferenceThreads choose_threads(ov::Core& core, const CompileOptions& options,
                                std::optional<double> quota) {
    InferenceThreads threads;
    threads.count = InferenceArena(core, options.openvino).num_threads();
    const std::string asked_name = ov::inference_num_threads.name();
    const auto asked = options.openvino.find(asked_name);
    const bool automatic = asked != options.openvino.end() && asked->second.as<size_t>() == 0;
    if (asked != options.openvino.end() && !automatic) {
        threads.why = concat(asked_name, " is ", asked->second.as<std::string>());
        if (asked->second.as<size_t>() > threads.count)
            threads.why += ", more than the physical cores that this process may use";
        return threads;
    }
    if (options.openvino.count(ov::num_streams.name()) != 0) {
        threads.why = concat(ov::num_streams.name(), " is set: the threads of all streams");
        return threads;
    }
    threads.why = "the physical cores of one socket that this process may use";
    if (quota && threads_of(*quota) < threads.count) {
        threads.count = threads_of(*quota);
        threads.why = concat("its control group has a quota of ", *quota, " processors");
        threads.properties[asked_name] = int(threads.count);
        if (options.openvino.count(ov::hint::enable_cpu_pinning.name()) == 0)
            threads.properties[ov::hint::enable_cpu_pinning.name()] = false;
    }
    return threads;
}

}  // namespace pagewheel
