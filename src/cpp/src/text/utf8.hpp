// UTF-8 by bytes.
#pragma once

#include <optional>
#include <string_view>

namespace pagewheel {

/// Offset of the first byte that begins no well-formed character (Unicode 15, table 3-7), if any.
std::optional<size_t> find_invalid_utf8(std::string_view text);

/// Throws std::invalid_argument that names `what` and the offset, unless `text` is UTF-8.
void check_utf8(std::string_view text, const char* what);

}  // namespace pagewheel
