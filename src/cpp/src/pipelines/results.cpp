#include "pagewheel/results.hpp"

#include <ostream>

namespace pagewheel {

std::string DecodedResults::to_string() const {
    std::string joined;
    for (const std::string& text : texts) joined += (&text == &texts.front() ? "" : "\n") + text;
    return joined;
}

std::ostream& operator<<(std::ostream& stream, const DecodedResults& results) {
    return stream << results.to_string();
}

}  // namespace pagewheel
