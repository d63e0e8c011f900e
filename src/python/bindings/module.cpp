#include "bindings.hpp"

PYBIND11_MODULE(_pagewheel, module) {
    using namespace pagewheel::python;
    module.doc() = "pagewheel's C++ core. Use it through the package pagewheel.";
    bind_errors(module);
    bind_log(module);
    bind_parser(module);
    bind_structured_output(module);
    bind_generation_config(module);
    bind_cache_eviction_config(module);
    bind_scheduler_config(module);
    bind_chat_history(module);
    bind_tokenizer(module);
    bind_grammar(module);
    bind_perf_metrics(module);
    bind_generation_handle(module);
    bind_pipe_notifier(module);
    bind_streamer(module);
    bind_parsers(module);
    bind_results(module);
    bind_cache_view(module);
    bind_statistics(module);
    bind_prefix_cache(module);
    bind_continuous_batching_pipeline(module);
    bind_llm_pipeline(module);
    bind_operations(module);
}
