#include "compile/compile_model.hpp"

#include <utility>

#include "base/check.hpp"
#include "compile/prepare_graph.hpp"
#include "openvino/runtime/properties.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel {
namespace {

/// OpenVINO takes fewer threads than it is asked for without a word.
void check_threads(const CompileOptions& options, CompiledGraph& compiled) {
    const auto asked = options.openvino.find(ov::inference_num_threads.name());
    if (!options.on_cpu || asked == options.openvino.end()) return;
    const int count = compiled.model.get_property(ov::inference_num_threads);
    if (asked->second.as<int>() > count)
        compiled.warnings.push_back(concat(asked->first, " is ", asked->second.as<std::string>(),
                                           ", but only ", count,
                                           " physical cores may be used: as many threads run"));
}

}  // namespace

CompiledGraph compile_model(ov::Core& core, const ModelFolder& folder,
                            const CompileOptions& options) {
    PreparedGraph graph = prepare_graph(core, folder, options);
    CompiledGraph compiled;
    try {
        compiled.model = core.compile_model(graph.model, options.device, graph.properties);
    } catch (const ov::Exception& error) {
        throw InvalidArgument(concat("device ", options.device, " cannot run ", folder.model_xml(),
                                     " with these properties: ", reason(error)));
    }
    compiled.model_xml = folder.model_xml();
    compiled.options = options;
    compiled.geometry = read_cache_geometry(compiled.model, graph.regions.caches);
    compiled.rotary = std::move(graph.config.rotary);
    compiled.layers = std::move(graph.layers);
    compiled.has_logits_indices = graph.fast_prefill.num_native_attentions > 0;
    compiled.openvino_layers = std::move(graph.openvino_layers);
    compiled.regions = std::move(graph.regions.plans);
    compiled.warnings = std::move(graph.warnings);
    check_threads(options, compiled);
    if (options.profiling)
        for (const auto& region : compiled.regions) region->profile().switch_on();
    return compiled;
}

}  // namespace pagewheel
