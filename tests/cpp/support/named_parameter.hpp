// A graph's input with a name.
#pragma once

#include <memory>
#include <string>

#include "openvino/op/parameter.hpp"

namespace pagewheel {

inline std::shared_ptr<ov::op::v0::Parameter> named_parameter(const std::string& name,
                                                              const ov::element::Type& type,
                                                              const ov::PartialShape& shape) {
    const auto parameter = std::make_shared<ov::op::v0::Parameter>(type, shape);
    parameter->set_friendly_name(name);
    parameter->output(0).set_names({name});
    return parameter;
}

}  // namespace pagewheel
