// UTF-8 by bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/check.hpp"

namespace pagewheel {

/// Offset of the first byte that begins no well-formed character (Unicode 15, table 3-7), if any.
std::optional<size_t> find_invalid_utf8(std::string_view text);

/// `bytes` with U+FFFD for each maximal part that begins no character, as Unicode recommends and
/// Python's errors="replace" does.
std::string replace_invalid_utf8(std::string bytes);

/// Throws InvalidArgument that names `what` and the offset, unless `text` is UTF-8.
void check_utf8(std::string_view text, const ParameterName& what);

}  // namespace pagewheel
