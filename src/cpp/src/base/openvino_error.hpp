// What an OpenVINO exception has to say to a user.
#pragma once

#include <sstream>
#include <string>

#include "openvino/core/except.hpp"

namespace pagewheel {

/// The message without the list of OpenVINO's source files that it passed through.
inline std::string reason(const ov::Exception& error) {
    std::istringstream lines(error.what());
    std::string text;
    for (std::string line; std::getline(lines, line);)
        if (!line.empty() && line.rfind("Exception from src/", 0) != 0)
            text += (text.empty() ? "" : " ") + line;
    return text;
}

}  // namespace pagewheel
