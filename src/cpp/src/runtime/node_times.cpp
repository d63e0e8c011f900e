#include "runtime/node_times.hpp"

#include <algorithm>
#include <chrono>

namespace pagewheel {

std::vector<ov::ProfilingInfo> node_times(
    const ov::InferRequest& request,
    const std::vector<std::shared_ptr<const RegionPlan>>& regions) {
    using std::chrono::duration_cast;
    using std::chrono::microseconds;
    std::vector<ov::ProfilingInfo> nodes = request.get_profiling_info();
    for (const auto& plan : regions) {
        const auto means = plan->profile().means();
        if (means.empty()) continue;
        RegionProfile::Clock::duration inside{0};
        for (size_t i = 0; i < means.size(); ++i) {
            const RegionStep& step = plan->description().steps[i];
            ov::ProfilingInfo info;
            info.status = ov::ProfilingInfo::Status::EXECUTED;
            info.real_time = info.cpu_time = std::chrono::round<microseconds>(means[i]);
            info.node_name = step.name;
            info.node_type = step.op->get_type_name();
            info.exec_type = "pagewheel";
            inside += means[i];
            nodes.push_back(info);
        }
        for (ov::ProfilingInfo& node : nodes)
            if (node.node_name == plan->description().name) {
                node.real_time -= std::min(node.real_time, duration_cast<microseconds>(inside));
                node.cpu_time = node.real_time;
            }
    }
    return nodes;
}

}  // namespace pagewheel
