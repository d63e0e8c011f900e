// Linear layers of every ISA and weight format against the quantised product in double.
#include "kernels/quantized_linear.hpp"

#include <gtest/gtest.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernels.hpp"
#include "kernels/quantized_linear_tile.hpp"
#include "support/kernel_access.hpp"
#include "support/linear_matrix.hpp"

namespace pagewheel::kernels {

/// AVX2 with VNNI, the instruction in AVX-512's encoding: for processors that lack the other.
LinearKernels linear_avx2_vnni_by_avx512();

namespace {

using Scale = PackedLinear::Scale;
const Format mxfp4{WeightType::f4e2m1, 32, Zero::none, Scale::e8m0};

struct Variant {
    std::string name;
    LinearKernels calls;
    Activations activations;

    void linear(LinearInput input, const LinearOutput* outputs, size_t count,
                const RotaryAngles& angles = {}) const {
        input.activations = activations;
        quantized_linear_by(calls, input, outputs, count, angles);
    }
    void mlp(LinearInput input, const GatedMlp& mlp) const {
        input.activations = activations;
        gated_mlp_by(calls, input, mlp);
    }
};

/// Those that this processor runs.
std::vector<Variant> variants() {
    std::vector<Variant> all;
    const auto add = [&](const std::string& name, const LinearKernels& calls) {
        all.push_back({name + " int8", calls, Activations::int8});
        all.push_back({name + " int16", calls, Activations::int16});
    };
    for (const Isa isa : available_isas()) {
        const LinearKernels least = isa.entry().make(isa.entry().required).linear;
        const LinearKernels most = isa.kernels().linear;
        add(isa.name(), least);
        if (most.multiply != least.multiply)
            add(isa.name() + std::string(" with all there is"), most);
#if defined(__x86_64__)
        if (isa.name() == std::string("avx512"))
            add("avx2 vnni by avx512", linear_avx2_vnni_by_avx512());
#endif
    }
    return all;
}

/// What 32 activations of up to this magnitude are multiplied with before they are rounded, and
/// afterwards.
std::pair<float, float> scaling(float maximum, Activations activations) {
    if (activations == Activations::int16) {
        float scale = 0x1p-120f;
        while (maximum / scale > 1904) scale *= 2;
        return {1 / scale, scale};
    }
    return {127 / maximum, maximum / 127};
}

/// x as the layers see it.
std::vector<double> quantized(const std::vector<float>& x, size_t k, Activations activations) {
    std::vector<double> result(x.size());
    for (size_t row = 0; row < x.size(); row += k)
        for (size_t c = 0; c < k; c += 32) {
            const size_t begin = row + c, end = row + std::min(c + 32, k);
            float maximum = 0;
            for (size_t i = begin; i < end; ++i) maximum = std::max(maximum, std::abs(x[i]));
            if (maximum < 1e-30f) continue;
            const auto [factor, scale] = scaling(maximum, activations);
            for (size_t i = begin; i < end; ++i)
                result[i] = double(std::nearbyint(x[i] * factor)) * double(scale);
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
                const std::vector<float>& residual, Activations activations) {
    const size_t n = m.view.n, k = m.view.k, rows = x.size() / k;
    const std::vector<double> xq = quantized(x, k, activations);
    double worst = 0;
    for (size_t r = 0; r < rows; ++r)
        for (size_t i = 0; i < n; ++i) {
            double sum = residual.empty() ? 0 : double(residual[r * n + i]);
            double magnitude = std::abs(sum) + 1e-30;
            for (size_t j = 0; j < k; ++j) {
                const size_t group = i * m.view.groups() + j / m.view.group;
                const double zero = m.zero_points.empty() ? 0 : double(m.zero_points[group]);
                const double shift = m.view.type == WeightType::i8       ? 128
                                     : m.view.type == WeightType::i4     ? 8
                                     : m.view.type == WeightType::f4e2m1 ? 6
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

void expect_product(const Format& format, size_t n, size_t k, size_t rows, std::mt19937& random,
                    float scale = 0.01f, float x_scale = 1) {
    const Matrix m = make_matrix(format, n, k, scale, random);
    const PackedLinear packed(m.view);
    const std::vector<float> x = normal(rows * k, random, x_scale);
    const std::vector<float> residual =
        rows % 2 == 0 ? normal(rows * n, random, x_scale * scale) : std::vector<float>();
    for (const Variant& variant : variants()) {
        std::vector<float> output(rows * n + 16, NAN);
        const LinearOutput one{&packed, output.data(),
                               residual.empty() ? nullptr : residual.data()};
        variant.linear({x.data(), rows}, &one, 1);
        EXPECT_LT(error_of(m, x, output, residual, variant.activations), 3e-7)
            << name_of(format) << ", n " << n << ", k " << k << ", rows " << rows << ", "
            << variant.name;
        for (size_t i = rows * n; i < output.size(); ++i)
            ASSERT_TRUE(std::isnan(output[i])) << "written past the end, " << variant.name;
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
        for (const Format& format :
             {Format{WeightType::u4, 32, Zero::fractional}, Format{WeightType::i8, 32},
              Format{WeightType::i4, 128}, mxfp4})
            expect_product(format, 35, 161, rows, random);
}

// Else what a request is answered would depend on which others share its step.
TEST(QuantizedLinear, ARowIsTheSameToTheBitAmongAnyNumberOfOthers) {
    std::mt19937 random(12);
    const size_t n = 35, k = 161, most = 130;
    for (const Format& format :
         {Format{WeightType::u4, 32, Zero::fractional}, Format{WeightType::i4, 64, Zero::common},
          Format{WeightType::i8, 32}, mxfp4}) {
        const Matrix m = make_matrix(format, n, k, 0.01f, random);
        const PackedLinear packed(m.view);
        const std::vector<float> x = normal(most * k, random), gamma = normal(k, random);
        for (const Variant& variant : variants()) {
            std::vector<float> expected(most * n);
            for (size_t r = 0; r < most; ++r) {
                const LinearOutput one{&packed, expected.data() + r * n};
                variant.linear({x.data() + r * k, 1, gamma.data(), 1e-5f}, &one, 1);
            }
            for (const size_t rows : {8, 9, 64, 65, 130}) {
                std::vector<float> output(rows * n);
                const LinearOutput one{&packed, output.data()};
                variant.linear({x.data(), rows, gamma.data(), 1e-5f}, &one, 1);
                for (size_t i = 0; i < output.size(); ++i)
                    ASSERT_EQ(output[i], expected[i]) << name_of(format) << ", row " << i / n
                                                      << " of " << rows << ", " << variant.name;
            }
        }
    }
}

// A step that checks drafts computes several rows of a sequence at once. They are to be those that
// it would get one after the other.
TEST(QuantizedLinear, EachOfUpTo24RowsIsTheSameToTheBitAsAlone) {
    std::mt19937 random(19);
    const size_t n = 48, k = 161, inner = 75, most = 24, head = 16;
    std::vector<Format> formats{mxfp4};
    for (const WeightType type : {WeightType::u4, WeightType::i8})
        for (const Zero zero : {Zero::common, Zero::integer, Zero::fractional, Zero::any})
            for (const size_t group : {32, 64}) formats.push_back({type, group, zero});
    for (const Format& format : formats) {
        const PackedLinear square(make_matrix(format, n, k, 0.01f, random).view);
        const PackedLinear narrow(make_matrix(format, 35, k, 0.01f, random).view);
        const PackedLinear gate(make_matrix(format, inner, k, 0.01f, random).view);
        const PackedLinear up(make_matrix(format, inner, k, 0.01f, random).view);
        const PackedLinear down(make_matrix(format, k, inner, 0.01f, random).view);
        const std::vector<float> x = normal(most * k, random), gamma = normal(k, random);
        const std::vector<float> residual = normal(most * 35, random);
        const std::vector<float> cos = normal(most * head, random),
                                 sin = normal(cos.size(), random);
        for (const Variant& variant : variants()) {
            // Rotated and plain outputs and the MLP's of rows [first, first + rows), row by row.
            const auto run = [&](size_t first, size_t rows) {
                std::vector<float> rotated(rows * n), plain(rows * 35), mlp_output(rows * k);
                const LinearInput input{x.data() + first * k, rows, gamma.data(), 1e-5f};
                const LinearOutput outputs[] = {
                    {&square, rotated.data(), nullptr, {head, gamma.data(), 1e-6f, true}},
                    {&narrow, plain.data(), residual.data() + first * 35}};
                variant.linear(input, outputs, 2,
                               {head, cos.data() + first * head, sin.data() + first * head});
                const GatedMlp mlp{&gate, &up, &down, mlp_output.data(), input.x};
                variant.mlp(input, mlp);
                std::vector<std::vector<float>> all(rows);
                for (size_t r = 0; r < rows; ++r) {
                    const auto append = [&](const std::vector<float>& from, size_t size) {
                        all[r].insert(all[r].end(), from.begin() + long(r * size),
                                      from.begin() + long((r + 1) * size));
                    };
                    append(rotated, n);
                    append(plain, 35);
                    append(mlp_output, k);
                }
                return all;
            };
            std::vector<std::vector<float>> alone;
            for (size_t r = 0; r < most; ++r) alone.push_back(run(r, 1)[0]);
            for (size_t rows = 2; rows <= most; ++rows)
                for (const size_t first : {size_t(0), most - rows}) {
                    const auto together = run(first, rows);
                    for (size_t r = 0; r < rows; ++r)
                        ASSERT_EQ(together[r], alone[first + r])
                            << name_of(format) << ", row " << r << " of " << rows << ", "
                            << variant.name;
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
                expect_product({type, 32, zero, Scale::f16, fill}, 20, 96, 5, random);
    for (const float scale : {1e-35f, 1e-15f, 1e15f})
        expect_product(mxfp4, 20, 96, 5, random, scale);
    for (const float scale : {6e-8f, 1e-6f, 20000.0f})  // f16's subnormals and its upper end
        for (const float x_scale : {1e-20f, 1.0f, 1e20f})
            expect_product({WeightType::u4, 32, Zero::none}, 20, 96, 5, random, scale, x_scale);
    for (const float scale : {1e-15f, 1e15f})
        expect_product({WeightType::i8, 64, Zero::integer, Scale::f32}, 20, 96, 5, random, scale);
}

// Activations and weights at both ends of their ranges.
TEST(QuantizedLinear, HoldsForActivationsAtTheirLimitsOnOneSideOrBoth) {
    std::mt19937 random(14);
    const size_t n = 20, k = 96, rows = 12;
    for (const Fill fill : {Fill::random, Fill::lowest, Fill::highest}) {
        const Matrix m =
            make_matrix({WeightType::u4, 32, Zero::fractional, Scale::f16, fill}, n, k, 1, random);
        const PackedLinear packed(m.view);
        std::vector<float> x(rows * k);
        for (size_t i = 0; i < x.size(); ++i) {
            const bool up = i / k % 3 == 0 || (i / k % 3 == 2 && random() % 2 == 0);
            x[i] = up ? 1.0f : -1.0f;  // rows of 1, of -1, of both
        }
        for (const Variant& variant : variants()) {
            std::vector<float> output(rows * n);
            const LinearOutput one{&packed, output.data()};
            variant.linear({x.data(), rows}, &one, 1);
            EXPECT_LT(error_of(m, x, output, {}, variant.activations), 3e-7) << variant.name;
        }
    }
}

TEST(QuantizedLinear, InputOfZerosGivesTheResidual) {
    std::mt19937 random(5);
    const Matrix m = make_matrix({WeightType::u4, 32, Zero::fractional}, 20, 64, 1, random);
    const PackedLinear packed(m.view);
    for (const float tiny : {0.0f, 1e-31f}) {
        const std::vector<float> x(64, tiny);
        for (const Variant& variant : variants()) {
            std::vector<float> output(20, 2.5f);
            const LinearOutput one{&packed, output.data(), output.data()};
            variant.linear({x.data(), 1}, &one, 1);
            EXPECT_EQ(output, std::vector<float>(20, 2.5f)) << variant.name;
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
    for (const Variant& variant : variants()) {
        std::vector<PackedLinear> packed;
        std::vector<std::vector<float>> outputs;
        std::vector<LinearOutput> calls;
        for (const Matrix& m : matrices) {
            packed.emplace_back(m.view);
            outputs.emplace_back(rows * m.view.n);
        }
        for (size_t i = 0; i < packed.size(); ++i)
            calls.push_back({&packed[i], outputs[i].data(), nullptr});
        variant.linear({x.data(), rows}, calls.data(), calls.size());
        for (size_t i = 0; i < packed.size(); ++i)
            EXPECT_LT(error_of(matrices[i], x, outputs[i], {}, variant.activations), 3e-7)
                << variant.name;
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
        for (const Variant& variant : variants()) {
            std::vector<float> output(60), expected(60);
            LinearOutput one{&packed, expected.data(), nullptr};
            variant.linear({good.data(), 3}, &one, 1);
            one.output = output.data();
            variant.linear({x.data(), 3}, &one, 1);
            for (size_t i = 0; i < 60; ++i)
                if (i / 20 != 1) {
                    EXPECT_EQ(output[i], expected[i]) << variant.name;
                }
        }
    }
}

TEST(QuantizedLinear, AnInt16RowThatIsNotFiniteOrTooLargeHasNoFiniteOutput) {
    std::mt19937 random(17);
    const Matrix m = make_matrix({WeightType::u4, 32, Zero::fractional}, 20, 64, 1, random);
    const PackedLinear packed(m.view);
    const std::vector<float> good = normal(64, random);
    for (const float bad : {NAN, -NAN, INFINITY, -INFINITY, 3e34f, -3e38f}) {
        std::vector<float> x = good;
        x[37] = bad;
        for (const Variant& variant : variants()) {
            if (variant.activations != Activations::int16) continue;
            std::vector<float> output(20);
            const LinearOutput one{&packed, output.data()};
            variant.linear({x.data(), 1}, &one, 1);
            for (const float v : output) EXPECT_FALSE(std::isfinite(v)) << bad << variant.name;
        }
    }
}

// Twelve bits in three bytes for two places. A value that is off by one step costs a scale or more.
TEST(QuantizedLinear, Int16HoldsPairsOfValuesExactly) {
    const size_t n = 16, k = 32;
    std::mt19937 random(18);
    for (const WeightType type : {WeightType::u4, WeightType::u8}) {
        const Matrix m = make_matrix({type, 32}, n, k, 1, random);
        const PackedLinear packed(m.view);
        std::vector<float> x;
        for (int first = -1904; first <= 1904; first += 17)
            for (int second = -1904; second <= 1904; second += 16) {
                std::vector<float> row(k);
                row[3] = float(first);
                row[16 + 3] = float(second);
                row[9] = 1904;  // a scale of 1
                x.insert(x.end(), row.begin(), row.end());
            }
        for (const Variant& variant : variants()) {
            if (variant.activations != Activations::int16) continue;
            std::vector<float> output(24 * n);
            for (size_t row = 0; row < x.size() / k; row += 24) {
                const size_t rows = std::min<size_t>(24, x.size() / k - row);
                const LinearOutput one{&packed, output.data()};
                variant.linear({x.data() + row * k, rows}, &one, 1);
                for (size_t i = 0; i < rows * n; ++i) {
                    const double* w = m.w.data() + i % n * k;
                    const float* values = x.data() + (row + i / n) * k;
                    const double expected =
                        w[3] * double(values[3]) + w[19] * double(values[19]) + w[9] * 1904.0;
                    ASSERT_NEAR(output[i], expected, 0.25 * std::abs(m.scales[i % n]))
                        << values[3] << ", " << values[19] << ", " << variant.name;
                }
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
            for (const Variant& variant : variants()) {
                std::vector<float> output(rows * n), expected(rows * n);
                LinearOutput one{&packed, expected.data(), nullptr};
                variant.linear({expected_x.data(), rows}, &one, 1);
                one.output = output.data();
                variant.linear({x.data(), rows, gamma.data(), 1e-3f}, &one, 1);
                EXPECT_LT(largest_difference(output, expected), 0.02)
                    << "k " << k << ", rows " << rows << ", " << variant.name;
            }
        }
}

TEST(QuantizedLinear, GatesItsInput) {
    std::mt19937 random(14);
    const size_t n = 40;
    for (const size_t k : {33, 64})
        for (const size_t rows : {1, 7, 40}) {
            const Matrix m = make_matrix({WeightType::u4, 32, Zero::any}, n, k, 0.01f, random);
            const PackedLinear packed(m.view);
            const std::vector<float> x = normal(rows * k, random),
                                     gate = normal(rows * k, random, 9);
            std::vector<float> expected_x(x);
            for (size_t i = 0; i < x.size(); ++i) expected_x[i] /= 1 + std::exp(-gate[i]);
            for (const Variant& variant : variants()) {
                std::vector<float> output(rows * n), expected(rows * n);
                LinearOutput one{&packed, expected.data()};
                variant.linear({expected_x.data(), rows}, &one, 1);
                one.output = output.data();
                LinearInput input{x.data(), rows};
                input.gate = gate.data();
                variant.linear(input, &one, 1);
                EXPECT_LT(largest_difference(output, expected), 0.02)
                    << "k " << k << ", rows " << rows << ", " << variant.name;
            }
        }
}

TEST(QuantizedLinear, NormsAndRotatesTheHeadsOfAnOutput) {
    std::mt19937 random(13);
    const size_t k = 64, heads = 3;
    using Case = std::pair<size_t, size_t>;  // a head, of which so many values are rotated
    for (const Case& sizes : {Case(2, 2), Case(16, 16), Case(44, 44), Case(64, 16), Case(50, 6)})
        for (const size_t rows : {1, 9, 70}) {
            const size_t head = sizes.first, size = sizes.second, n = heads * head;
            const Matrix m = make_matrix({WeightType::u4, 32, Zero::any}, n, k, 0.01f, random);
            const PackedLinear packed(m.view);
            const std::vector<float> x = normal(rows * k, random), gamma = normal(head, random);
            const std::vector<float> cos = normal(rows * size, random);
            const std::vector<float> sin = normal(rows * size, random);
            for (const Variant& variant : variants()) {
                std::vector<float> plain(rows * n), rotated(rows * n), finished(rows * n);
                const LinearOutput outputs[] = {
                    {&packed, plain.data()},
                    {&packed, rotated.data(), nullptr, {head, nullptr, 0, true}},
                    {&packed, finished.data(), nullptr, {head, gamma.data(), 1e-3f, true}}};
                variant.linear({x.data(), rows}, outputs, 3, {size, cos.data(), sin.data()});
                const std::vector<float> norms = normed(plain, gamma, 1e-3);
                const auto expected = [&](const std::vector<float>& from, size_t i) {
                    const size_t row = i / n, at = i % head, half = size / 2;
                    if (at >= size) return double(from[i]);
                    const double other = at < half ? -from[i + half] : from[i - half];
                    return double(from[i]) * cos[row * size + at] + other * sin[row * size + at];
                };
                for (size_t i = 0; i < rows * n; ++i) {
                    ASSERT_NEAR(rotated[i], expected(plain, i), 1e-5)
                        << size << " of " << head << ", " << i << ", " << variant.name;
                    ASSERT_NEAR(finished[i], expected(norms, i), 1e-5)
                        << size << " of " << head << ", " << i << ", " << variant.name;
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
            for (const Variant& variant : variants()) {
                std::vector<float> g(rows * inner), u(rows * inner), expected(rows * n);
                const LinearInput input{x.data(), rows, gamma.data(), 1e-5f};
                const LinearOutput both[] = {{&gate_packed, g.data()}, {&up_packed, u.data()}};
                variant.linear(input, both, 2);
                for (size_t i = 0; i < g.size(); ++i) g[i] *= u[i] / (1 + std::exp(-g[i]));
                const LinearOutput last{&down_packed, expected.data(), residual.data()};
                variant.linear({g.data(), rows}, &last, 1);

                std::vector<float> output = residual;  // in place
                GatedMlp mlp;
                mlp.gate = &gate_packed;
                mlp.up = &up_packed;
                mlp.down = &down_packed;
                mlp.output = output.data();
                mlp.residual = output.data();
                variant.mlp(input, mlp);
                EXPECT_LT(largest_difference(output, expected), 0.02)
                    << "inner " << inner << ", rows " << rows << ", " << variant.name;
            }
        }
}

TEST(QuantizedLinear, AnOutputMayBeTheInput) {
    std::mt19937 random(15);
    const size_t k = 96, inner = 160;
    const Format q4_1{WeightType::u4, 32, Zero::fractional};
    const PackedLinear square(make_matrix(q4_1, k, k, 0.01f, random).view);
    const PackedLinear gate(make_matrix(q4_1, inner, k, 0.01f, random).view);
    const PackedLinear down(make_matrix(q4_1, k, inner, 0.01f, random).view);
    for (const size_t rows : {1, 2, 5, 20}) {
        const std::vector<float> x = normal(rows * k, random), gamma = normal(k, random);
        for (const Variant& variant : variants()) {
            std::vector<float> expected(rows * k), both(rows * k);
            LinearInput input{x.data(), rows, gamma.data(), 1e-5f};
            const LinearOutput apart{&square, expected.data(), x.data()};
            variant.linear(input, &apart, 1);
            GatedMlp mlp{&gate, &gate, &down, both.data(), expected.data()};
            input.x = expected.data();
            variant.mlp(input, mlp);
            for (size_t round = 0; round < 20; ++round) {
                std::vector<float> stream = x;
                input.x = stream.data();
                const LinearOutput same{&square, stream.data(), stream.data()};
                variant.linear(input, &same, 1);
                ASSERT_EQ(stream, expected) << rows << " rows, " << variant.name;
                mlp.output = stream.data();
                mlp.residual = stream.data();
                variant.mlp(input, mlp);
                ASSERT_EQ(stream, both) << rows << " rows, " << variant.name;
            }
        }
    }
}

TEST(QuantizedLinear, RefusesWeightsInBf16) {
    std::mt19937 random(30);
    const Matrix m = make_matrix({WeightType::bf16, 0}, 20, 64, 1, random);
    const PackedLinear packed(m.view);
    std::vector<float> x(64), y(20);
    const LinearOutput one{&packed, y.data()};
    LinearInput input;
    input.x = x.data();
    input.rows = 1;
    for (const Variant& variant : variants())
        EXPECT_THROW(variant.linear(input, &one, 1), std::runtime_error) << variant.name;
}

TEST(QuantizedLinear, IsTheSameToTheBitOnAnyNumberOfThreads) {
    std::mt19937 random(16);
    const size_t n = 200, k = 96, inner = 176;
    const Format q4_1{WeightType::u4, 32, Zero::fractional};
    const PackedLinear wide(make_matrix(q4_1, n, k, 0.01f, random).view);
    const PackedLinear gate(make_matrix(q4_1, inner, k, 0.01f, random).view);
    const PackedLinear down(make_matrix(q4_1, k, inner, 0.01f, random).view);
    for (const size_t rows : {1, 3, 12}) {
        const std::vector<float> x = normal(rows * k, random);
        const auto run = [&](int threads) {
            std::vector<float> all(rows * (n + k));
            tbb::task_arena(threads).execute([&] {
                const LinearOutput one{&wide, all.data()};
                quantized_linear({x.data(), rows}, &one, 1, detected_isa());
                const GatedMlp mlp{&gate, &gate, &down, all.data() + rows * n, nullptr};
                gated_mlp({x.data(), rows}, mlp, detected_isa());
            });
            return all;
        };
        const std::vector<float> expected = run(1);
        for (const int threads : {2, 3, 7, 70})
            for (int round = 0; round < 10; ++round)
                ASSERT_EQ(run(threads), expected) << rows << " rows, " << threads << " threads";
    }
}

}  // namespace
}  // namespace pagewheel::kernels
