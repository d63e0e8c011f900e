// Single numbers in f16, by F16C's instructions, which come with every x86 vector set here.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace pagewheel::kernels {
namespace {

struct F16c {
    static uint16_t half(float x) {
        return static_cast<uint16_t>(
            _mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT)));
    }
    static float float_of(uint16_t half) {
        return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));
    }
};

}  // namespace
}  // namespace pagewheel::kernels
