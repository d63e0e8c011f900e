// The graphs of a model folder, openvino_*.xml with their constants in the .bin beside them.
#pragma once

#include <filesystem>
#include <memory>

#include "openvino/core/model.hpp"
#include "openvino/runtime/core.hpp"

namespace pagewheel {

/// Throws std::invalid_argument for a file that is no OpenVINO IR: OpenVINO would try its readers
/// of other formats on it.
std::shared_ptr<ov::Model> read_graph(ov::Core& core, const std::filesystem::path& xml);

}  // namespace pagewheel
