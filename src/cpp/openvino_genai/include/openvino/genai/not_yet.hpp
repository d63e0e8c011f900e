// What pagewheel does not do yet is refused by its name in openvino_genai.
#pragma once

#include <string>

#include "pagewheel/errors.hpp"

namespace pagewheel::openvino_genai {

[[noreturn]] inline void refuse_missing(const std::string& what, const char* feature) {
    throw InvalidArgument(what + ": pagewheel has no " + feature + " yet");
}

}  // namespace pagewheel::openvino_genai
