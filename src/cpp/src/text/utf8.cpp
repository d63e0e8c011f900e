#include "text/utf8.hpp"

#include "base/check.hpp"

namespace pagewheel {
namespace {

/// What stands at the start of a text: `length` bytes of a character, or as much of one as is
/// there.
struct Character {
    size_t length;
    bool complete;
};

Character read_character(std::string_view text) {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned lead = byte(0);
    if (lead < 0x80) return {1, true};
    if (lead < 0xC2 || lead > 0xF4) return {1, false};
    const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    // The second byte's range excludes overlong forms, surrogates and what is beyond U+10FFFF.
    const unsigned lowest = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const unsigned highest = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    for (size_t i = 1; i < length; ++i) {
        const bool fits = i < text.size() && (i == 1 ? byte(i) >= lowest && byte(i) <= highest
                                                     : (byte(i) & 0xC0) == 0x80);
        if (!fits) return {i, false};
    }
    return {length, true};
}

}  // namespace

std::optional<size_t> find_invalid_utf8(std::string_view text) {
    for (size_t i = 0; i < text.size();) {
        const Character character = read_character(text.substr(i));
        if (!character.complete) return i;
        i += character.length;
    }
    return std::nullopt;
}

std::string replace_invalid_utf8(std::string bytes) {
    auto bad = find_invalid_utf8(bytes);
    if (!bad) return bytes;
    std::string text = bytes.substr(0, *bad);
    for (std::string_view rest = std::string_view(bytes).substr(*bad); !rest.empty();) {
        const Character character = read_character(rest);
        text += character.complete ? rest.substr(0, character.length) : "\xEF\xBF\xBD";
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
