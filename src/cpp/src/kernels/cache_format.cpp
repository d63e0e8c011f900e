#include "kernels/cache_format.hpp"

#include "base/check.hpp"
#include "kernels/cache_formats/formats.hpp"

namespace pagewheel::kernels {
namespace {

/// "f32, bf16 and f16".
std::string names() {
    std::string text;
    size_t left = std::size(all_cache_formats);
    for (const CacheFormat format : all_cache_formats)
        text += cache_format_name(format) + std::string(--left == 0 ? ""
                                                        : left == 1 ? " and "
                                                                    : ", ");
    return text;
}

}  // namespace

const char* cache_format_name(CacheFormat format) {
    switch (format) {
#define PAGEWHEEL_CASE(name) \
    case CacheFormat::name:  \
        return #name;
        PAGEWHEEL_CACHE_FORMATS(PAGEWHEEL_CASE)
#undef PAGEWHEEL_CASE
    }
    __builtin_unreachable();
}

CacheFormat parse_cache_format(const std::string& name) {
    for (const CacheFormat format : all_cache_formats)
        if (name == cache_format_name(format)) return format;
    refuse_argument("cache format ", name, ": allowed are ", names());
}

bool is_quantized(CacheFormat format) {
    return for_format<void>(format, [](auto f) { return FormatTraits<f>::quantized; });
}

}  // namespace pagewheel::kernels
