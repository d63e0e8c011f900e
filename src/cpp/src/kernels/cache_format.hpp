// The formats that a cache holds keys and values in, each described by a file of cache_formats/.
#pragma once

#include <cstddef>
#include <string>

namespace pagewheel::kernels {

/// All of them. Every list of formats and every switch over them follows from this one.
#define PAGEWHEEL_CACHE_FORMATS(FORMAT) FORMAT(f32) FORMAT(bf16) FORMAT(f16) FORMAT(u8) FORMAT(u4)

#define PAGEWHEEL_ENUMERATOR(name) name,
enum class CacheFormat { PAGEWHEEL_CACHE_FORMATS(PAGEWHEEL_ENUMERATOR) };
#undef PAGEWHEEL_ENUMERATOR

#define PAGEWHEEL_ELEMENT(name) CacheFormat::name,
inline constexpr CacheFormat all_cache_formats[] = {PAGEWHEEL_CACHE_FORMATS(PAGEWHEEL_ELEMENT)};
#undef PAGEWHEEL_ELEMENT

const char* cache_format_name(CacheFormat format);
/// The format of that name; any other name throws InvalidArgument.
CacheFormat parse_cache_format(const std::string& name);
/// Whether it holds codes, with scales and minima, and not the numbers themselves.
bool is_quantized(CacheFormat format);

}  // namespace pagewheel::kernels
