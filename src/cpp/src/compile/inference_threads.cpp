#include "compile/inference_threads.hpp"

#include <algorithm>
#include <cmath>

#include "base/check.hpp"
#include "compile/inference_arena.hpp"
#include "openvino/runtime/properties.hpp"

namespace pagewheel {
namespace {

/// To the nearest number. Two threads in 1.5 processors, which are stopped for a quarter of the
/// time, are faster than one; in 1.4 they are not (docs/scaling.md).
size_t threads_of(double quota) {
    return std::max<size_t>(1, size_t(std::lround(quota)));
}

}  // namespace

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
