#include "pagewheel/operations.hpp"

#include <map>
#include <set>
#include <utility>

#include "base/check.hpp"
#include "graph/compile_model.hpp"
#include "graph/inference_threads.hpp"
#include "kernels/activation_choice.hpp"
#include "model/openvino_core.hpp"
#include "ops/quantized_linear.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel {

Operations describe_operations(const std::filesystem::path& model_folder, const std::string& device,
                               const ov::AnyMap& properties) {
    static const std::set<std::string> heavy{"MatMul", "PagedAttentionExtension"};
    ov::Core& core = openvino_core();
    const CompileOptions options =
        parse_compile_options(device, properties, nullptr, core.get_available_devices());
    const PreparedGraph graph = prepare_graph(core, ModelFolder(model_folder), options);
    std::map<std::pair<std::string, std::string>, size_t> counts;
    Operations operations;
    const auto count = [&](const ov::Node& node) {
        if (const auto* linear = dynamic_cast<const QuantizedLinear*>(&node))
            operations.linear =
                kernels::describe_activations(linear->attributes().activations, detected_isa());
        const auto& type = node.get_type_info();
        const bool own = type.version_id && std::string(type.version_id) == "pagewheel";
        if (own || heavy.count(type.name) != 0)
            ++counts[{own ? "pagewheel" : "openvino", type.name}];
    };
    for (const auto& node : graph.model->get_ordered_ops()) {
        count(*node);
        if (const auto region = ov::as_type_ptr<NativeRegion>(node))
            for (const RegionStep& step : region->plan()->description().steps) count(*step.op);
    }
    for (const auto& [key, count] : counts)
        operations.counts.push_back({key.second, key.first, count});
    operations.left = graph.left;
    operations.left.insert(operations.left.end(), graph.warnings.begin(), graph.warnings.end());
    const FastPrefillReport& report = graph.fast_prefill;
    operations.fast_prefill = {report.num_layers, report.num_attentions, report.work_skipped,
                               report.why};
    return operations;
}

Threads describe_threads(const std::string& device, const ov::AnyMap& properties) {
    ov::Core& core = openvino_core();
    const CompileOptions options =
        parse_compile_options(device, properties, nullptr, core.get_available_devices());
    check_argument(options.on_cpu, "threads are counted on CPU, not on ", device);
    try {
        const InferenceThreads threads = choose_threads(core, options, cpu_quota());
        return {threads.count, threads.why};
    } catch (const ov::Exception& error) {
        throw InvalidArgument(
            concat("device ", device, " refuses these properties: ", reason(error)));
    }
}

}  // namespace pagewheel
