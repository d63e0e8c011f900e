// Linear layers of every ISA and weight format against the quantised product in double.
#include "kernels/quantized_linear.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/half.hpp"

namespace pagewheel::kernels {
namespace {

std::vector<Isa> isas() {
    std::vector<Isa> all;
    for (Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512})
        if (isa <= detected_isa()) all.push_back(isa);
    return all;
}

enum class Zero { none, common, integer, fractional, any };
enum class Fill { random, zeros, lowest, highest };

struct Format {
    WeightType type;
    size_t group;  // 0: one per row
    Zero zero = Zero::none;
    bool f16_scales = true;
    Fill fill = Fill::random;
};

std::string name_of(const Format& f) {
    static const char* types[] = {"u4", "i4", "u8", "i8"};
    static const char* zeros[] = {"none", "common", "integer", "fractional", "any"};
    static const char* fills[] = {"random", "zeros", "lowest", "highest"};
    return std::string(types[int(f.type)]) + " group " + std::to_string(f.group) + " zero " +
           zeros[int(f.zero)] + (f.f16_scales ? " f16 " : " f32 ") + fills[int(f.fill)];
}

/// A matrix that owns its arrays, and its values in double.
struct Matrix {
    LinearWeights view;
    std::vector<uint8_t> values;
    std::vector<float> scales, zero_points;
    std::vector<double> w;  // [n, k]
};

int lowest(WeightType type) {
    return type == WeightType::i4 ? -8 : type == WeightType::i8 ? -128 : 0;
}

int draw(const Format& format, std::mt19937& random) {
    const bool four = format.type == WeightType::u4 || format.type == WeightType::i4;
    const int low = lowest(format.type), high = low + (four ? 15 : 255);
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

float draw_zero_point(const Format& format, size_t i, float scale, std::mt19937& random) {
    const float low = float(lowest(format.type));
    const bool four = format.type == WeightType::u4 || format.type == WeightType::i4;
    const float high = low + (four ? 15.0f : 255.0f);
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

Matrix make_matrix(const Format& format, size_t n, size_t k, float scale, std::mt19937& random) {
    Matrix m;
    LinearWeights& view = m.view;
    view.n = n;
    view.k = k;
    view.group = format.group == 0 ? k : format.group;
    view.type = format.type;
    const bool four = format.type == WeightType::u4 || format.type == WeightType::i4;
    m.values.assign(four ? (n * k + 1) / 2 : n * k, 0);
    const size_t groups = view.groups();
    std::uniform_real_distribution<float> around(0.5f, 2.0f);
    for (size_t i = 0; i < n * groups; ++i) {
        const float drawn = around(random) * scale * (i % 5 == 0 ? -1.0f : 1.0f);
        m.scales.push_back(format.f16_scales ? float_of_half(half_of_float(drawn)) : drawn);
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
        m.w.push_back((value - zero) * double(m.scales[group]));
    }
    view.values = m.values.data();
    view.scales = m.scales.data();
    view.zero_points = m.zero_points.empty() ? nullptr : m.zero_points.data();
    return m;
}

/// x as the layers see it.
std::vector<double> quantized(const std::vector<float>& x, size_t k) {
    std::vector<double> result(x.size());
    for (size_t row = 0; row < x.size(); row += k)
        for (size_t c = 0; c < k; c += 32) {
            const size_t begin = row + c, end = row + std::min(c + 32, k);
            float highest = 0, lowest = 0;
            for (size_t i = begin; i < end; ++i) {
                highest = std::max(highest, x[i]);
                lowest = std::min(lowest, x[i]);
            }
            const float maximum =
                std::max(std::max(highest, -lowest), (highest - lowest) * (127.0f / 239.9f));
            if (maximum < 1e-30f) continue;
            const float inverse = 127.0f / maximum;
            for (size_t i = begin; i < end; ++i)
                result[i] = double(std::nearbyint(x[i] * inverse)) * double(maximum / 127.0f);
        }
    return result;
}

std::vector<float> normal(size_t n, std::mt19937& random, float deviation = 1) {
    std::normal_distribution<float> distribution(0, deviation);
    std::vector<float> x(n);
    for (float& v : x) v = distribution(random);
    return x;
}

/// Largest distance of `output` from the double product over the sum of the terms' magnitudes, the
/// zero point's two terms counted as they are computed.
double error_of(const Matrix& m, const std::vector<float>& x, const std::vector<float>& output,
                const std::vector<float>& residual) {
    const size_t n = m.view.n, k = m.view.k, rows = x.size() / k;
    const std::vector<double> xq = quantized(x, k);
    double worst = 0;
    for (size_t r = 0; r < rows; ++r)
        for (size_t i = 0; i < n; ++i) {
            double sum = residual.empty() ? 0 : double(residual[r * n + i]);
            double magnitude = std::abs(sum) + 1e-30;
            for (size_t j = 0; j < k; ++j) {
                const size_t group = i * m.view.groups() + j / m.view.group;
                const double zero = m.zero_points.empty() ? 0 : double(m.zero_points[group]);
                const double shift = m.view.type == WeightType::i8   ? 128
                                     : m.view.type == WeightType::i4 ? 8
                                                                     : 0;
                sum += m.w[i * k + j] * xq[r * k + j];
                magnitude += (std::abs(m.w[i * k + j]) +
                              std::abs((zero + shift) * double(m.scales[group]))) *
                             std::abs(xq[r * k + j]);
            }
            worst = std::max(worst, std::abs(sum - double(output[r * n + i])) / magnitude);
        }
    return worst;
}

std::vector<Format> all_formats() {
    std::vector<Format> formats;
    for (const WeightType type : {WeightType::u4, WeightType::i4, WeightType::u8, WeightType::i8})
        for (const Zero zero :
             {Zero::none, Zero::common, Zero::integer, Zero::fractional, Zero::any})
            for (const bool f16 : {true, false})
                for (const size_t group : {32, 64, 128, 0})
                    formats.push_back({type, size_t(group), zero, f16});
    return formats;
}

void expect_product(const Format& format, size_t n, size_t k, size_t rows, std::mt19937& random,
                    float scale = 0.01f, float x_scale = 1) {
    const Matrix m = make_matrix(format, n, k, scale, random);
    const PackedLinear packed(m.view);
    const std::vector<float> x = normal(rows * k, random, x_scale);
    const std::vector<float> residual =
        rows % 2 == 0 ? normal(rows * n, random, x_scale * scale) : std::vector<float>();
    for (const Isa isa : isas()) {
        std::vector<float> output(rows * n + 16, NAN);
        const LinearOutput one{&packed, output.data(),
                               residual.empty() ? nullptr : residual.data()};
        quantized_linear({x.data(), rows}, &one, 1, isa);
        EXPECT_LT(error_of(m, x, output, residual), 3e-7)
            << name_of(format) << ", n " << n << ", k " << k << ", rows " << rows << ", "
            << isa_name(isa);
        for (size_t i = rows * n; i < output.size(); ++i)
            ASSERT_TRUE(std::isnan(output[i])) << "written past the end, " << isa_name(isa);
    }
}

TEST(QuantizedLinear, IsTheProductInDoubleForEveryFormat) {
    std::mt19937 random(1);
    size_t i = 0;
    for (const Format& format : all_formats()) {
        const size_t n = 1 + size_t(random() % 50), k = 1 + size_t(random() % 300);
        expect_product(format, n, k, 1 + i++ % 40, random);
    }
}

TEST(QuantizedLinear, TakesAnyNumberOfRows) {
    std::mt19937 random(2);
    for (const size_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 15, 16, 17, 24, 25, 31, 33, 100, 300})
        for (const Format& format : {Format{WeightType::u4, 32, Zero::fractional},
                                     Format{WeightType::i8, 32}, Format{WeightType::i4, 128}})
            expect_product(format, 35, 161, rows, random);
}

// Else what a request is answered would depend on which others share its step.
TEST(QuantizedLinear, ARowIsTheSameToTheBitAmongAnyNumberOfOthers) {
    std::mt19937 random(12);
    const size_t n = 35, k = 161, most = 130;
    for (const Format& format :
         {Format{WeightType::u4, 32, Zero::fractional}, Format{WeightType::i4, 64, Zero::common},
          Format{WeightType::i8, 32}}) {
        const Matrix m = make_matrix(format, n, k, 0.01f, random);
        const PackedLinear packed(m.view);
        const std::vector<float> x = normal(most * k, random), gamma = normal(k, random);
        for (const Isa isa : isas()) {
            std::vector<float> expected(most * n);
            for (size_t r = 0; r < most; ++r) {
                const LinearOutput one{&packed, expected.data() + r * n};
                quantized_linear({x.data() + r * k, 1, gamma.data(), 1e-5f}, &one, 1, isa);
            }
            for (const size_t rows : {8, 9, 64, 65, 130}) {
                std::vector<float> output(rows * n);
                const LinearOutput one{&packed, output.data()};
                quantized_linear({x.data(), rows, gamma.data(), 1e-5f}, &one, 1, isa);
                for (size_t i = 0; i < output.size(); ++i)
                    ASSERT_EQ(output[i], expected[i]) << name_of(format) << ", row " << i / n
                                                      << " of " << rows << ", " << isa_name(isa);
            }
        }
    }
}

TEST(QuantizedLinear, TakesSizesThatFillNoTile) {
    std::mt19937 random(3);
    for (const size_t n : {1, 15, 16, 17, 31, 33})
        for (const size_t k : {1, 15, 16, 17, 31, 32, 33, 63, 65, 127, 129})
            for (const Format& format :
                 {Format{WeightType::u4, 64, Zero::integer}, Format{WeightType::u8, 0}})
                expect_product(format, n, k, 3, random);
}

TEST(QuantizedLinear, HoldsAtTheEndsOfTheRange) {
    std::mt19937 random(4);
    for (const WeightType type : {WeightType::u4, WeightType::i4, WeightType::u8, WeightType::i8})
        for (const Fill fill : {Fill::zeros, Fill::lowest, Fill::highest})
            for (const Zero zero : {Zero::none, Zero::integer})
                expect_product({type, 32, zero, true, fill}, 20, 96, 5, random);
    for (const float scale : {6e-8f, 1e-6f, 20000.0f})  // f16's subnormals and its upper end
        for (const float x_scale : {1e-20f, 1.0f, 1e20f})
            expect_product({WeightType::u4, 32, Zero::none}, 20, 96, 5, random, scale, x_scale);
    for (const float scale : {1e-15f, 1e15f})
        expect_product({WeightType::i8, 64, Zero::integer, false}, 20, 96, 5, random, scale);
}

// Rows for which the paired product has no room to spare: its factors reach 0, 255, -128 and 127.
TEST(QuantizedLinear, HoldsForActivationsAtTheirLimitsOnOneSideOrBoth) {
    std::mt19937 random(14);
    const size_t n = 20, k = 96, rows = 12;
    for (const Fill fill : {Fill::random, Fill::lowest, Fill::highest}) {
        const Matrix m =
            make_matrix({WeightType::u4, 32, Zero::fractional, true, fill}, n, k, 1, random);
        const PackedLinear packed(m.view);
        std::vector<float> x(rows * k);
        for (size_t i = 0; i < x.size(); ++i) {
            const bool up = i / k % 3 == 0 || (i / k % 3 == 2 && random() % 2 == 0);
            x[i] = up ? 1.0f : -1.0f;  // rows of 1, of -1, of both
        }
        for (const Isa isa : isas()) {
            std::vector<float> output(rows * n);
            const LinearOutput one{&packed, output.data()};
            quantized_linear({x.data(), rows}, &one, 1, isa);
            EXPECT_LT(error_of(m, x, output, {}), 3e-7) << isa_name(isa);
        }
    }
}

TEST(QuantizedLinear, InputOfZerosGivesTheResidual) {
    std::mt19937 random(5);
    const Matrix m = make_matrix({WeightType::u4, 32, Zero::fractional}, 20, 64, 1, random);
    const PackedLinear packed(m.view);
    for (const float tiny : {0.0f, 1e-31f}) {
        const std::vector<float> x(64, tiny);
        for (const Isa isa : isas()) {
            std::vector<float> output(20, 2.5f);
            const LinearOutput one{&packed, output.data(), output.data()};
            quantized_linear({x.data(), 1}, &one, 1, isa);
            EXPECT_EQ(output, std::vector<float>(20, 2.5f)) << isa_name(isa);
        }
    }
}

TEST(QuantizedLinear, MatricesThatShareAnInputAreComputedTogether) {
    std::mt19937 random(6);
    const size_t k = 160, rows = 21;
    const std::vector<float> x = normal(rows * k, random);
    std::vector<Matrix> matrices;
    matrices.push_back(make_matrix({WeightType::u4, 32, Zero::fractional}, 48, k, 1, random));
    matrices.push_back(make_matrix({WeightType::i8, 32}, 7, k, 1, random));
    matrices.push_back(make_matrix({WeightType::i4, 0}, 33, k, 1, random));
    for (const Isa isa : isas()) {
        std::vector<PackedLinear> packed;
        std::vector<std::vector<float>> outputs;
        std::vector<LinearOutput> calls;
        for (const Matrix& m : matrices) {
            packed.emplace_back(m.view);
            outputs.emplace_back(rows * m.view.n);
        }
        for (size_t i = 0; i < packed.size(); ++i)
            calls.push_back({&packed[i], outputs[i].data(), nullptr});
        quantized_linear({x.data(), rows}, calls.data(), calls.size(), isa);
        for (size_t i = 0; i < packed.size(); ++i)
            EXPECT_LT(error_of(matrices[i], x, outputs[i], {}), 3e-7) << isa_name(isa);
    }
}

TEST(QuantizedLinear, ARowThatIsNotFiniteSpoilsNoOther) {
    std::mt19937 random(7);
    const Matrix m = make_matrix({WeightType::u4, 32, Zero::integer}, 20, 64, 1, random);
    const PackedLinear packed(m.view);
    const std::vector<float> good = normal(3 * 64, random);
    for (const float bad : {NAN, INFINITY}) {
        std::vector<float> x = good;
        x[64 + 5] = bad;
        for (const Isa isa : isas()) {
            std::vector<float> output(60), expected(60);
            LinearOutput one{&packed, expected.data(), nullptr};
            quantized_linear({good.data(), 3}, &one, 1, isa);
            one.output = output.data();
            quantized_linear({x.data(), 3}, &one, 1, isa);
            for (size_t i = 0; i < 60; ++i)
                if (i / 20 != 1) {
                    EXPECT_EQ(output[i], expected[i]) << isa_name(isa);
                }
        }
    }
}

/// The root mean square norm, in float as the layers get it.
std::vector<float> normed(const std::vector<float>& x, const std::vector<float>& gamma,
                          double epsilon) {
    const size_t k = gamma.size();
    std::vector<float> result(x.size());
    for (size_t row = 0; row < x.size(); row += k) {
        double squares = 0;
        for (size_t i = 0; i < k; ++i) squares += double(x[row + i]) * double(x[row + i]);
        for (size_t i = 0; i < k; ++i)
            result[row + i] =
                float(gamma[i] * x[row + i] / std::sqrt(squares / double(k) + epsilon));
    }
    return result;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
    double worst = 0;
    for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, double(std::abs(a[i] - b[i])));
    return worst;
}

// In the next two the two sides quantise activations that differ in the last bits, so that now and
// then one of 127 steps differs: the bounds are a few such steps, far below what a wrong sum gives.

TEST(QuantizedLinear, MultipliesTheNormOfItsInput) {
    std::mt19937 random(10);
    const size_t n = 40;
    for (const size_t k : {33, 64, 200})
        for (const size_t rows : {1, 7, 40}) {
            const Matrix m = make_matrix({WeightType::u4, 32, Zero::any}, n, k, 0.01f, random);
            const PackedLinear packed(m.view);
            const std::vector<float> x = normal(rows * k, random, 3), gamma = normal(k, random);
            const std::vector<float> expected_x = normed(x, gamma, 1e-3);
            for (const Isa isa : isas()) {
                std::vector<float> output(rows * n), expected(rows * n);
                LinearOutput one{&packed, expected.data(), nullptr};
                quantized_linear({expected_x.data(), rows}, &one, 1, isa);
                one.output = output.data();
                quantized_linear({x.data(), rows, gamma.data(), 1e-3f}, &one, 1, isa);
                EXPECT_LT(largest_difference(output, expected), 0.02)
                    << "k " << k << ", rows " << rows << ", " << isa_name(isa);
            }
        }
}

TEST(QuantizedLinear, TurnsTheHeadsOfAnOutput) {
    std::mt19937 random(13);
    const size_t k = 64, heads = 3;
    for (const size_t size : {2, 16, 44, 64})
        for (const size_t rows : {1, 9, 70}) {
            const size_t n = heads * size;
            const Matrix m = make_matrix({WeightType::u4, 32, Zero::any}, n, k, 0.01f, random);
            const PackedLinear packed(m.view);
            const std::vector<float> x = normal(rows * k, random);
            const std::vector<float> cos = normal(rows * size, random);
            const std::vector<float> sin = normal(rows * size, random);
            for (const Isa isa : isas()) {
                std::vector<float> plain(rows * n), turned(rows * n);
                const LinearOutput outputs[] = {{&packed, plain.data(), nullptr, false},
                                                {&packed, turned.data(), nullptr, true}};
                quantized_linear({x.data(), rows}, outputs, 2, isa, {size, cos.data(), sin.data()});
                for (size_t i = 0; i < rows * n; ++i) {
                    const size_t row = i / n, at = i % size, half = size / 2;
                    const double other = at < half ? -plain[i + half] : plain[i - half];
                    const double expected =
                        double(plain[i]) * cos[row * size + at] + other * sin[row * size + at];
                    ASSERT_NEAR(turned[i], expected, 1e-5)
                        << "size " << size << ", row " << row << ", " << isa_name(isa);
                }
            }
        }
}

TEST(QuantizedLinear, AGatedMlpIsItsPartsOneAfterTheOther) {
    std::mt19937 random(11);
    for (const size_t inner : {16, 48, 75, 320})
        for (const size_t rows : {1, 5, 16, 70}) {
            const size_t k = 96, n = 50;
            const Format q4_1{WeightType::u4, 32, Zero::fractional};
            const Matrix gate = make_matrix(q4_1, inner, k, 0.01f, random);
            const Matrix up = make_matrix(rows % 2 ? Format{WeightType::i8, 0} : q4_1, inner, k,
                                          rows % 2 ? 0.001f : 0.01f, random);
            const Matrix down = make_matrix(q4_1, n, inner, 0.01f, random);
            const PackedLinear gate_packed(gate.view), up_packed(up.view), down_packed(down.view);
            const std::vector<float> x = normal(rows * k, random), gamma = normal(k, random);
            const std::vector<float> residual = normal(rows * n, random);
            for (const Isa isa : isas()) {
                std::vector<float> g(rows * inner), u(rows * inner), expected(rows * n);
                const LinearInput input{x.data(), rows, gamma.data(), 1e-5f};
                const LinearOutput both[] = {{&gate_packed, g.data()}, {&up_packed, u.data()}};
                quantized_linear(input, both, 2, isa);
                for (size_t i = 0; i < g.size(); ++i) g[i] *= u[i] / (1 + std::exp(-g[i]));
                const LinearOutput last{&down_packed, expected.data(), residual.data()};
                quantized_linear({g.data(), rows}, &last, 1, isa);

                std::vector<float> output = residual;  // in place
                GatedMlp mlp;
                mlp.gate = &gate_packed;
                mlp.up = &up_packed;
                mlp.down = &down_packed;
                mlp.output = output.data();
                mlp.residual = output.data();
                gated_mlp(input, mlp, isa);
                EXPECT_LT(largest_difference(output, expected), 0.02)
                    << "inner " << inner << ", rows " << rows << ", " << isa_name(isa);
            }
        }
}

TEST(PackedLinear, TakesTheSmallestFormThatIsExact) {
    std::mt19937 random(8);
    using Offset = PackedLinear::Offset;
    const auto packed = [&](const Format& format) {
        return PackedLinear(make_matrix(format, 32, 128, 0.01f, random).view);
    };
    EXPECT_EQ(packed({WeightType::i8, 32}).offset(), Offset::common);
    EXPECT_EQ(packed({WeightType::u4, 32, Zero::integer}).offset(), Offset::u8_zero_point);
    EXPECT_EQ(packed({WeightType::u4, 32, Zero::fractional}).offset(), Offset::f16_minimum);
    EXPECT_EQ(packed({WeightType::u4, 32, Zero::any}).offset(), Offset::f32_minimum);
    EXPECT_FALSE(packed({WeightType::u4, 32, Zero::none, false}).f16_scales());
    const PackedLinear q4_1 = packed({WeightType::u4, 32, Zero::fractional});
    EXPECT_EQ(q4_1.bytes(), 32 * 128 * 5 / 8);  // 4 bits and two f16 for 32
}

TEST(PackedLinear, RefusesGroupsThatCutAChunk) {
    std::mt19937 random(9);
    Matrix m = make_matrix({WeightType::u4, 32}, 16, 128, 1, random);
    m.view.group = 48;
    EXPECT_THROW(PackedLinear{m.view}, std::invalid_argument);
}

}  // namespace
}  // namespace pagewheel::kernels
