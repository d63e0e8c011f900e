// Random matrices of every format, and their values in double.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/half.hpp"
#include "kernels/packed_linear.hpp"

namespace pagewheel::kernels {

enum class Zero { none, common, integer, fractional, any };
enum class Fill { random, zeros, lowest, highest };

struct Format {
    WeightType type;
    size_t group;  // 0: one per row
    Zero zero = Zero::none;
    PackedLinear::Scale scale = PackedLinear::Scale::f16;  // of f32: any number
    Fill fill = Fill::random;
};

inline std::string name_of(const Format& f) {
    static const char* types[] = {"u4", "i4", "u8", "i8", "f4e2m1", "f16", "bf16"};
    static const char* zeros[] = {"none", "common", "integer", "fractional", "any"};
    static const char* scales[] = {" e8m0 ", " f16 ", " f32 "};
    static const char* fills[] = {"random", "zeros", "lowest", "highest"};
    return std::string(types[int(f.type)]) + " group " + std::to_string(f.group) + " zero " +
           zeros[int(f.zero)] + scales[int(f.scale)] + fills[int(f.fill)];
}

/// A matrix that owns its arrays, and its values in double.
struct Matrix {
    LinearWeights view;
    std::vector<uint8_t> values;
    std::vector<float> scales, zero_points;
    std::vector<double> w;  // [n, k]
};

/// Every type with every zero point and scale that it may have.
inline std::vector<Format> all_formats() {
    using Scale = PackedLinear::Scale;
    std::vector<Format> formats;
    for (const size_t group : {32, 64, 128, 0}) {
        for (const WeightType type :
             {WeightType::u4, WeightType::i4, WeightType::u8, WeightType::i8})
            for (const Zero zero :
                 {Zero::none, Zero::common, Zero::integer, Zero::fractional, Zero::any})
                for (const Scale scale : {Scale::f16, Scale::f32})
                    formats.push_back({type, size_t(group), zero, scale});
        for (const Scale scale : {Scale::e8m0, Scale::f16, Scale::f32})
            formats.push_back({WeightType::f4e2m1, size_t(group), Zero::none, scale});
    }
    return formats;
}

/// Weights of 16 bits.
inline std::vector<Format> float_formats() {
    return {{WeightType::f16, 0}, {WeightType::bf16, 0}};
}

inline bool is_float(WeightType type) {
    return type == WeightType::f16 || type == WeightType::bf16;
}

inline bool has_4_bits(WeightType type) {
    return type != WeightType::u8 && type != WeightType::i8 && !is_float(type);
}

/// What the bits of a weight stand for.
inline double value_of(WeightType type, int bits) {
    static const double f4e2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    if (type != WeightType::f4e2m1) return bits;
    return bits < 8 ? f4e2m1[bits] : -f4e2m1[bits - 8];
}

inline int lowest(WeightType type) {
    return type == WeightType::i4 ? -8 : type == WeightType::i8 ? -128 : 0;
}

inline int draw(const Format& format, std::mt19937& random) {
    const int low = lowest(format.type), high = low + (has_4_bits(format.type) ? 15 : 255);
    switch (format.fill) {
        case Fill::zeros:
            return 0;
        case Fill::lowest:
            return low;
        case Fill::highest:
            return high;
        default:
            return std::uniform_int_distribution<int>(low, high)(random);
    }
}

inline float draw_zero_point(const Format& format, size_t i, float scale, std::mt19937& random) {
    const float low = float(lowest(format.type));
    const float high = low + (has_4_bits(format.type) ? 15.0f : 255.0f);
    const float inside = std::uniform_real_distribution<float>(low, high)(random);
    switch (format.zero) {
        case Zero::common:
            return low + 3;
        case Zero::integer:  // both ends among them
            return i % 3 == 0 ? low : i % 3 == 1 ? high : std::round(inside);
        case Zero::fractional: {  // Q4_1: what an f16 minimum comes to
            const float shift = format.type == WeightType::i4   ? 8.0f
                                : format.type == WeightType::i8 ? 128.0f
                                                                : 0.0f;
            const float minimum = float_of_half(half_of_float(-(inside + shift) * scale));
            return -minimum / scale - shift;
        }
        default:
            return inside;
    }
}

inline float scale_in(PackedLinear::Scale form, float drawn) {
    switch (form) {
        case PackedLinear::Scale::e8m0:
            return std::exp2(std::round(std::log2(std::abs(drawn))));
        case PackedLinear::Scale::f16:
            return float_of_half(half_of_float(drawn));
        case PackedLinear::Scale::f32:
            return drawn;
    }
    __builtin_unreachable();
}

/// Numbers of `deviation`, 0 and f16's smallest ones among them.
inline Matrix make_float_matrix(WeightType type, size_t n, size_t k, float deviation,
                                std::mt19937& random) {
    Matrix m;
    std::normal_distribution<float> normal(0, deviation);
    for (size_t i = 0; i < n * k; ++i) {
        const float drawn = i % 7 == 0 ? 0.0f : i % 11 == 0 ? 0x1.4p-20f : normal(random);
        const bool half = type == WeightType::f16;
        const uint16_t bits = half ? half_of_float(drawn) : bf16_of_float(drawn);
        m.values.push_back(uint8_t(bits));
        m.values.push_back(uint8_t(bits >> 8));
        m.w.push_back(double(half ? float_of_half(bits) : float_of_bf16(bits)));
    }
    m.scales.assign(n, 0.0f);
    m.view = {n, k, k, type, m.values.data()};
    return m;
}

inline Matrix make_matrix(const Format& format, size_t n, size_t k, float scale,
                          std::mt19937& random) {
    if (is_float(format.type)) return make_float_matrix(format.type, n, k, 10 * scale, random);
    Matrix m;
    LinearWeights& view = m.view;
    view.n = n;
    view.k = k;
    view.group = format.group == 0 ? k : format.group;
    view.type = format.type;
    const bool four = has_4_bits(format.type);
    m.values.assign(four ? (n * k + 1) / 2 : n * k, 0);
    const size_t groups = view.groups();
    std::uniform_real_distribution<float> around(0.5f, 2.0f);
    for (size_t i = 0; i < n * groups; ++i) {
        const float drawn = around(random) * scale * (i % 5 == 0 ? -1.0f : 1.0f);
        m.scales.push_back(scale_in(format.scale, drawn));
        if (format.zero != Zero::none)
            m.zero_points.push_back(draw_zero_point(format, i, m.scales.back(), random));
    }
    for (size_t i = 0; i < n * k; ++i) {
        const int value = draw(format, random);
        if (four)
            m.values[i / 2] = uint8_t(m.values[i / 2] | ((value & 15) << (i % 2 * 4)));
        else
            m.values[i] = uint8_t(value);
        const size_t group = i / k * groups + i % k / view.group;
        const double zero = m.zero_points.empty() ? 0 : double(m.zero_points[group]);
        m.w.push_back((value_of(format.type, value) - zero) * double(m.scales[group]));
    }
    view.values = m.values.data();
    view.scales = m.scales.data();
    view.zero_points = m.zero_points.empty() ? nullptr : m.zero_points.data();
    return m;
}

}  // namespace pagewheel::kernels
