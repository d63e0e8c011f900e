#include "text/utf8.hpp"

#include "check.hpp"

namespace pagewheel {
namespace {

/// Length of the well-formed character at the start of `text`, 0 if there is none.
size_t character_length(std::string_view text) {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned lead = byte(0);
    if (lead < 0x80) return 1;
    const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
    for (size_t i = 1; i < length; ++i)
        if ((byte(i) & 0xC0) != 0x80) return 0;
    const bool overlong = (lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xF0 && byte(1) < 0x90);
    const bool surrogate = lead == 0xED && byte(1) > 0x9F;
    const bool too_large = lead == 0xF4 && byte(1) > 0x8F;
    return overlong || surrogate || too_large ? 0 : length;
}

}  // namespace

std::optional<size_t> find_invalid_utf8(std::string_view text) {
    for (size_t i = 0; i < text.size();) {
        const size_t length = character_length(text.substr(i));
        if (length == 0) return i;
        i += length;
    }
    return std::nullopt;
}

void check_utf8(std::string_view text, const char* what) {
    const auto offset = find_invalid_utf8(text);
    check_argument(!offset, what, " is not UTF-8: the bytes at offset ", offset.value_or(0),
                   " are no character");
}

}  // namespace pagewheel
