// Which operations of a model run where.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "openvino/core/any.hpp"
#include "pagewheel/visibility.hpp"

namespace pagewheel {

struct OperationCount {
    std::string operation;  ///< type of the node in the graph
    std::string runs_on;    ///< "pagewheel" or "openvino"
    size_t count = 0;
};

struct Operations {
    std::vector<OperationCount> counts;  ///< of what costs time: matrices and attention
    std::vector<std::string> left;       ///< why MatMuls stay with OpenVINO, one sentence each
};

/// For a pipeline of that folder, device and properties; nothing is compiled. Throws
/// std::invalid_argument as the pipeline's constructor does.
PAGEWHEEL_API Operations describe_operations(const std::filesystem::path& model_folder,
                                             const std::string& device = "CPU",
                                             const ov::AnyMap& properties = {});

}  // namespace pagewheel
