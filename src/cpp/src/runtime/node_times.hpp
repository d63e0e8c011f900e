// Where the time of an inference goes.
#pragma once

#include <memory>
#include <vector>

#include "openvino/runtime/infer_request.hpp"
#include "openvino/runtime/profiling_info.hpp"
#include "ops/native_region.hpp"

namespace pagewheel {

/// Mean times by node and operation inside a region, of a model compiled with profiling. A region's
/// node has what its operations leave.
std::vector<ov::ProfilingInfo> node_times(
    const ov::InferRequest& request, const std::vector<std::shared_ptr<const RegionPlan>>& regions);

}  // namespace pagewheel
