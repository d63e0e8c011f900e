#include "pagewheel/results.hpp"

#include <ostream>

namespace pagewheel {

std::string DecodedResults::to_string() const {
    if (texts.size() == 1) return texts.front();
    std::string joined;
    for (size_t i = 0; i < texts.size(); ++i)
        joined += (i == 0 ? "" : "\n") + std::to_string(i < scores.size() ? scores[i] : 0.0f) +
                  ": " + texts[i];
    return joined;
}

std::ostream& operator<<(std::ostream& stream, const DecodedResults& results) {
    return stream << results.to_string();
}

}  // namespace pagewheel
