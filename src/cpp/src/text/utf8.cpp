#include "text/utf8.hpp"

#include "base/check.hpp"
#include "base/code_point.hpp"

namespace pagewheel {
std::optional<size_t> find_invalid_utf8(std::string_view text) {
    for (size_t i = 0; i < text.size();) {
        const Utf8Character character = read_utf8(text.substr(i));
        if (!character.is_whole) return i;
        i += character.length;
    }
    return std::nullopt;
}

std::string replace_invalid_utf8(std::string bytes) {
    auto bad = find_invalid_utf8(bytes);
    if (!bad) return bytes;
    std::string text = bytes.substr(0, *bad);
    for (std::string_view rest = std::string_view(bytes).substr(*bad); !rest.empty();) {
        const Utf8Character character = read_utf8(rest);
        text += character.is_whole ? rest.substr(0, character.length) : "\xEF\xBF\xBD";
        rest.remove_prefix(character.length);
    }
    return text;
}

void check_utf8(std::string_view text, const ParameterName& what) {
    const auto offset = find_invalid_utf8(text);
    check_argument(!offset, what, " is not UTF-8: the bytes at offset ", offset.value_or(0),
                   " are no character");
}

}  // namespace pagewheel
