// Kinds of bytes in the formats of tool calls.
#pragma once

namespace pagewheel {

inline bool is_space(char byte) {
    return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

inline bool is_digit(char byte) {
    return byte >= '0' && byte <= '9';
}

/// Bytes of UTF-8 beyond ASCII are letters.
inline bool begins_name(char byte) {
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_' ||
           static_cast<unsigned char>(byte) >= 0x80;
}

inline bool is_name_byte(char byte) {
    return begins_name(byte) || is_digit(byte);
}

}  // namespace pagewheel
