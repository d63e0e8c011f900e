// Linear layers with activations in bf16: every kernel and weight format against the product in
// double.
#include "kernels/bf16_linear.hpp"

#include <gtest/gtest.h>
#include <tbb/global_control.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/half.hpp"
#include "kernels/isa/amx/linear.hpp"
#include "kernels/kernels.hpp"
#include "support/emulated_tiles.hpp"
#include "support/kernel_access.hpp"
#include "support/linear_matrix.hpp"
#include "support/plain_vectors.hpp"

namespace pagewheel::kernels {
namespace {

using Scale = PackedLinear::Scale;

struct Variant {
    std::string name;
    LinearKernels calls;
};

/// AMX's kernels on tiles by AVX-512, if this processor has what they need.
const Isa* amx_model() {
    static const std::optional<Isa> isa = []() -> std::optional<Isa> {
        try {
            return choose_isa("amx_model", processor_features());
        } catch (const std::runtime_error&) {
            return std::nullopt;
        }
    }();
    return isa ? &*isa : nullptr;
}

/// Those that this processor runs, and AMX's on emulated tiles and on those by AVX-512.
std::vector<Variant> variants() {
    std::vector<Variant> all;
    for (const Isa isa : available_isas())
        if (has_bf16_activations(isa)) all.push_back({isa.name(), isa.kernels().linear});
    LinearKernels emulated = Isa::scalar.kernels().linear;
    emulated.bf16 = amx::bf16_kernels<PlainVectors, EmulatedTiles>(emulated.bf16);
    all.push_back({"amx emulated", emulated});
    if (const Isa* model = amx_model(); model && *model != detected_isa())
        all.push_back({model->name(), model->kernels().linear});
    return all;
}

std::vector<float> normal(size_t n, std::mt19937& random, float deviation = 1) {
    std::normal_distribution<float> distribution(0, deviation);
    std::vector<float> x(n);
    for (float& v : x) v = distribution(random);
    return x;
}

LinearInput input_of(const std::vector<float>& x, size_t rows,
                     const std::vector<float>* gamma = nullptr) {
    return {x.data(), rows, gamma ? gamma->data() : nullptr, 1e-5f, Activations::bf16};
}

/// Whether its weights become bf16 by way of f16 where they fit it.
bool unpacks_by_halves(const Variant& variant) {
    return variant.name == "amx_model" ||
           (variant.name == "amx" && processor_features().has(CpuFeature::avx512_fp16));
}

/// Those of integers and of floats.
std::vector<Format> formats_in_bf16() {
    std::vector<Format> formats = all_formats();
    for (const Format& format : float_formats()) formats.push_back(format);
    return formats;
}

/// Bits of tile `tile`'s k-blocks [begin, end).
std::vector<uint16_t> unpacked(const Bf16Kernels& kernels, const PackedLinear& weights, size_t tile,
                               size_t begin, size_t end) {
    std::vector<uint16_t> numbers((end - begin) * tile_block);
    kernels.unpack(weights, tile, begin, end, numbers.data());
    return numbers;
}

/// Weight (n, k) of a tile that is unpacked as a whole.
float weight_at(const std::vector<uint16_t>& numbers, size_t n, size_t k) {
    return float_of_bf16(numbers[k / 2 * 2 * PackedLinear::tile_rows + n * 2 + k % 2]);
}

/// The weights [n, k] as the layers see them.
std::vector<double> rounded_weights(const PackedLinear& weights, const Bf16Kernels& kernels) {
    std::vector<double> result(weights.n() * weights.k());
    for (size_t tile = 0; tile < weights.tiles(); ++tile) {
        const auto numbers = unpacked(kernels, weights, tile, 0, weights.k_blocks());
        const size_t first = tile * PackedLinear::tile_rows;
        for (size_t n = first; n < std::min(first + PackedLinear::tile_rows, weights.n()); ++n)
            for (size_t k = 0; k < weights.k(); ++k)
                result[n * weights.k() + k] = double(weight_at(numbers, n - first, k));
    }
    return result;
}

TEST(Bf16Tiles, HoldTheWeightsRoundedToBf16) {
    std::mt19937 random(1);
    for (const Format& format : formats_in_bf16()) {
        const size_t n = 1 + size_t(random() % 40), k = 1 + size_t(random() % 300);
        const Matrix m = make_matrix(format, n, k, 0.01f, random);
        const std::vector<double> w = rounded_weights(PackedLinear(m.view), bf16_reference());
        for (size_t i = 0; i < w.size(); ++i) {
            const size_t group = i / k * m.view.groups() + i % k / m.view.group;
            // Half a unit of the last of bf16's eight digits, and what f32 loses of values and
            // minima.
            const double tolerance =
                std::abs(m.w[i]) * 0x1p-8 + std::abs(m.scales[group]) * 0x1p-13;
            ASSERT_NEAR(w[i], m.w[i], tolerance) << name_of(format) << ", n " << n << ", k " << k;
        }
    }
}

TEST(Bf16Tiles, AreTheSameToTheBitForEveryInstructionSetAndRange) {
    std::mt19937 random(2);
    for (const Format& format : formats_in_bf16()) {
        const Matrix m = make_matrix(format, 20, 1 + size_t(random() % 500), 0.01f, random);
        const PackedLinear packed(m.view);
        const size_t k_blocks = packed.k_blocks();
        for (const Variant& variant : variants())
            for (size_t tile = 0; tile < 2; ++tile) {
                if (packed.fits_f16() && unpacks_by_halves(variant)) continue;
                const auto whole = unpacked(bf16_reference(), packed, tile, 0, k_blocks);
                const size_t begin = random() % k_blocks;
                const size_t end = begin + 1 + random() % (k_blocks - begin);
                const auto range = unpacked(variant.calls.bf16, packed, tile, begin, end);
                ASSERT_TRUE(std::equal(range.begin(), range.end(),
                                       whole.begin() + ptrdiff_t(begin * tile_block)))
                    << name_of(format) << ", " << variant.name;
            }
    }
}

/// What unpack_f16.hpp says of a weight: the nearest bf16, halves away from zero, and 0 below 2^-22
/// but for half of the last digit.
float rounded_by_halves(double w) {
    if (std::abs(w) < 0x1p-22 - 0x1p-30) return 0;
    const double unit = std::ldexp(1.0, std::max(std::ilogb(w), -22) - 7);
    return float(std::copysign(std::floor(std::abs(w) / unit + 0.5) * unit, w));
}

/// Weight (n, k) as it is packed: its minimum may be rounded to f16. Exact.
double packed_weight(const Matrix& m, const PackedLinear& packed, size_t n, size_t k) {
    const double w = m.w[n * packed.k() + k];
    if (packed.offset() != PackedLinear::Offset::f16_minimum) return w;
    const size_t group = n * m.view.groups() + k / m.view.group;
    const float shift = m.view.type == WeightType::i4 ? 8.0f : 0.0f;
    const double scale = double(m.scales[group]);
    const double minimum = -double(m.zero_points[group] + shift) * scale;
    return w - minimum + double(float_of_half(half_of_float(float(minimum))));
}

TEST(Bf16Tiles, ByHalvesAreRoundedOnceToBf16) {
    std::mt19937 random(17);
    size_t fitting = 0;
    for (const Format& format : all_formats())
        for (const float scale : {0.01f, 6e-8f, 3e-5f, 10.0f}) {
            const Matrix m = make_matrix(format, 20, 1 + size_t(random() % 500), scale, random);
            const PackedLinear packed(m.view);
            if (!packed.fits_f16()) continue;
            ++fitting;
            for (const Variant& variant : variants()) {
                if (!unpacks_by_halves(variant)) continue;
                for (size_t tile = 0; tile < 2; ++tile) {
                    const auto numbers =
                        unpacked(variant.calls.bf16, packed, tile, 0, packed.k_blocks());
                    for (size_t n = 0; n < 16 && tile * 16 + n < 20; ++n)
                        for (size_t k = 0; k < packed.k(); ++k)
                            ASSERT_EQ(weight_at(numbers, n, k),
                                      rounded_by_halves(packed_weight(m, packed, tile * 16 + n, k)))
                                << name_of(format) << ", scale " << scale;
                }
            }
        }
    EXPECT_GT(fitting, 20u);
}

TEST(Bf16Tiles, ByHalvesAreOnlyOfWeightsThatFitF16) {
    std::mt19937 random(18);
    const auto fits = [&](const Format& format, float scale) {
        return PackedLinear(make_matrix(format, 20, 100, scale, random).view).fits_f16();
    };
    EXPECT_TRUE(fits({WeightType::u4, 32, Zero::fractional}, 0.01f));
    EXPECT_TRUE(fits({WeightType::u4, 32, Zero::integer}, 0.01f));
    EXPECT_TRUE(fits({WeightType::i4, 32, Zero::none}, 0.01f));
    EXPECT_FALSE(fits({WeightType::u4, 32, Zero::integer}, 100.0f)) << "weights of 1,500";
    EXPECT_FALSE(fits({WeightType::u4, 32, Zero::integer, Scale::f32}, 0.01f)) << "scales in f32";
    EXPECT_FALSE(fits({WeightType::u8, 32, Zero::integer}, 0.01f)) << "8 bits";
    EXPECT_FALSE(fits({WeightType::u4, 32, Zero::any}, 0.01f)) << "minima in f32";
}

TEST(Bf16Tiles, TakeRowsRoundedToNearestEvenAndPaddedWithZeros) {
    std::mt19937 random(3);
    for (const Variant& variant : variants())
        for (const size_t k : {1, 15, 16, 17, 31, 32, 33, 100}) {
            std::vector<float> x = normal(k, random);
            x[0] = 1 + 0x1p-8f;  // halves: to 1, and up to 1 + 2^-6
            if (k > 1) x[1] = 1 + 3 * 0x1p-8f;
            const size_t k_blocks = (k + 31) / 32, stride = 3 * row_block;
            std::vector<uint16_t> packed(k_blocks * stride, 7);
            variant.calls.bf16.pack_row(x.data(), k, 3, packed.data());
            EXPECT_EQ(float_of_bf16(packed[0]), 1.0f);
            for (size_t i = 0; i < k_blocks * row_block; ++i)
                ASSERT_EQ(packed[i / row_block * stride + i % row_block],
                          i < k ? bf16_of_float(x[i]) : 0)
                    << variant.name << ", k " << k << ", " << i;
            EXPECT_EQ(packed[row_block], 7) << "another row's";
        }
}

/// Largest distance of `output` from the double product of rounded operands over the sum of the
/// terms' magnitudes.
double error_of(const std::vector<double>& w, size_t n, const std::vector<float>& x, size_t rows,
                const std::vector<float>& output, const std::vector<float>& residual) {
    const size_t k = x.size() / rows;
    double worst = 0;
    for (size_t r = 0; r < rows; ++r)
        for (size_t i = 0; i < n; ++i) {
            double sum = residual.empty() ? 0 : double(residual[r * n + i]);
            double magnitude = std::abs(sum) + 1e-30;
            for (size_t j = 0; j < k; ++j) {
                const double term =
                    w[i * k + j] * double(float_of_bf16(bf16_of_float(x[r * k + j])));
                sum += term;
                magnitude += std::abs(term);
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
        quantized_linear_by(variant.calls, input_of(x, rows), &one, 1);
        const std::vector<double> w = rounded_weights(packed, variant.calls.bf16);
        // f32's rounding of k sums, of which few are as large as the sum of magnitudes.
        EXPECT_LT(error_of(w, n, x, rows, output, residual), 0x1p-24 * std::sqrt(double(k) + 4) * 2)
            << name_of(format) << ", n " << n << ", k " << k << ", rows " << rows << ", "
            << variant.name;
        for (size_t i = rows * n; i < output.size(); ++i)
            ASSERT_TRUE(std::isnan(output[i])) << "written past the end, " << variant.name;
    }
}

TEST(Bf16Linear, IsTheProductOfRoundedOperandsForEveryFormat) {
    std::mt19937 random(4);
    size_t i = 0;
    for (const Format& format : formats_in_bf16()) {
        const size_t n = 1 + size_t(random() % 80), k = 1 + size_t(random() % 400);
        expect_product(format, n, k, 1 + i++ % 20, random);
    }
}

TEST(Bf16Linear, TakesAnyNumberOfRows) {
    std::mt19937 random(5);
    for (const size_t rows : {1, 2, 5, 6, 7, 11, 12, 13, 15, 16, 17, 31, 32, 33, 47, 100, 600})
        for (const Format& format : {Format{WeightType::u4, 32, Zero::fractional},
                                     Format{WeightType::i8, 0}, Format{WeightType::f16, 0}})
            expect_product(format, 35, 65, rows, random);
}

TEST(Bf16Linear, TakesSizesThatFillNoTileAndSeveralRanges) {
    std::mt19937 random(6);
    for (const size_t n : {1, 15, 16, 17, 31, 33, 63, 65, 130})
        for (const size_t k : {1, 31, 32, 33, 255, 257, 519, 1100}) {
            expect_product({WeightType::u4, 64, Zero::integer}, n, k, 3, random);
            expect_product({WeightType::bf16, 0}, n, k, 3, random);
        }
}

// On tiles: two ranges of k, so that sums are loaded again, in whole blocks and in cut ones.
TEST(Bf16Linear, TakesSeveralRangesOfManyRows) {
    std::mt19937 random(16);
    for (const size_t rows : {33, 48, 64})
        for (const size_t k : {1025, 2100})
            for (const size_t n : {32, 37}) {
                expect_product({WeightType::u4, 32, Zero::fractional}, n, k, rows, random);
                expect_product({WeightType::bf16, 0}, n, k, rows, random);
            }
}

// On tiles: several groups of pairs of weight tiles, each over several ranges of k.
TEST(Bf16Linear, TakesSeveralGroupsOfTiles) {
    std::mt19937 random(19);
    for (const size_t n : {1056, 1100})
        expect_product({WeightType::u4, 32, Zero::fractional}, n, 700, 40, random);
}

// So many rows that each thread keeps its own, also with a last block of few rows.
TEST(Bf16Linear, TakesRowsOfEachThread) {
    std::mt19937 random(20);
    for (const int threads : {1, 2, 3}) {
        const tbb::global_control workers(tbb::global_control::max_allowed_parallelism, 3);
        tbb::task_arena(threads).execute([&] {
            for (const size_t rows : {128, 161, 300, 390, 513})
                expect_product({WeightType::u4, 32, Zero::integer}, 37, 100, rows, random);
        });
    }
}

TEST(Bf16Linear, HoldsAtTheEndsOfTheRange) {
    std::mt19937 random(7);
    for (const WeightType type : {WeightType::u4, WeightType::i4, WeightType::u8, WeightType::i8})
        for (const Fill fill : {Fill::zeros, Fill::lowest, Fill::highest})
            for (const Zero zero : {Zero::none, Zero::integer})
                expect_product({type, 32, zero, Scale::f16, fill}, 20, 96, 5, random);
    for (const float scale : {6e-8f, 1e-6f, 20000.0f})  // f16's subnormals and its upper end
        for (const float x_scale : {1e-20f, 1.0f, 1e20f})
            expect_product({WeightType::u4, 32, Zero::none}, 20, 96, 5, random, scale, x_scale);
}

// What bf16 itself costs: an operand's rounding error is at most 2^-8 / sqrt(3) of it in the mean
// square, that of a product of two sqrt(2) times that, 0.0032. Sums of k such products grow as
// their errors do, so it is the same for every k.
TEST(Bf16Linear, LosesNoMoreThanBf16OfTheExactProduct) {
    std::mt19937 random(8);
    const size_t n = 40, rows = 10;
    for (const size_t k : {64, 576, 1536, 4096}) {
        const Matrix m = make_matrix({WeightType::u4, 32, Zero::fractional}, n, k, 0.01f, random);
        const PackedLinear packed(m.view);
        const std::vector<float> x = normal(rows * k, random);
        for (const Variant& variant : variants()) {
            std::vector<float> output(rows * n);
            const LinearOutput one{&packed, output.data()};
            quantized_linear_by(variant.calls, input_of(x, rows), &one, 1);
            double error = 0, size = 0;
            for (size_t r = 0; r < rows; ++r)
                for (size_t i = 0; i < n; ++i) {
                    double sum = 0;
                    for (size_t j = 0; j < k; ++j) sum += m.w[i * k + j] * double(x[r * k + j]);
                    error += std::pow(sum - double(output[r * n + i]), 2);
                    size += sum * sum;
                }
            EXPECT_LT(std::sqrt(error / size), 0.0032) << "k " << k << ", " << variant.name;
        }
    }
}

// Else what a request is answered would depend on which others share its step.
TEST(Bf16Linear, ARowIsTheSameToTheBitAmongAnyNumberOfOthers) {
    std::mt19937 random(9);
    const size_t n = 70, k = 290, most = 130;
    for (const Format& format : {Format{WeightType::u4, 32, Zero::fractional},
                                 Format{WeightType::i8, 0}, Format{WeightType::f16, 0}}) {
        const Matrix m = make_matrix(format, n, k, 0.01f, random);
        const PackedLinear packed(m.view);
        const std::vector<float> x = normal(most * k, random), gamma = normal(k, random);
        const std::vector<float> residual = normal(most * n, random);
        for (const Variant& variant : variants()) {
            std::vector<float> expected(most * n);
            const LinearOutput all{&packed, expected.data(), residual.data()};
            quantized_linear_by(variant.calls, input_of(x, most, &gamma), &all, 1);
            for (const size_t rows : {1, 5, 8, 17, 64, 65}) {
                const size_t first = random() % (most - rows);
                const std::vector<float> some(x.begin() + ptrdiff_t(first * k),
                                              x.begin() + ptrdiff_t((first + rows) * k));
                std::vector<float> output(rows * n);
                const LinearOutput one{&packed, output.data(), residual.data() + first * n};
                quantized_linear_by(variant.calls, input_of(some, rows, &gamma), &one, 1);
                for (size_t i = 0; i < output.size(); ++i)
                    ASSERT_EQ(output[i], expected[first * n + i])
                        << name_of(format) << ", row " << i / n << " of " << rows << ", "
                        << variant.name;
            }
        }
    }
}

TEST(Bf16Linear, ARowThatIsNotFiniteSpoilsNoOther) {
    std::mt19937 random(10);
    const size_t n = 20, k = 64, rows = 33;
    const Matrix m = make_matrix({WeightType::u4, 32, Zero::integer}, n, k, 1, random);
    const PackedLinear packed(m.view);
    const std::vector<float> good = normal(rows * k, random);
    for (const float bad : {NAN, -NAN, INFINITY, -INFINITY})
        for (const Variant& variant : variants()) {
            std::vector<float> x = good, output(rows * n), expected(rows * n);
            x[5 * k + 5] = bad;
            LinearOutput one{&packed, expected.data(), nullptr};
            quantized_linear_by(variant.calls, input_of(good, rows), &one, 1);
            one.output = output.data();
            quantized_linear_by(variant.calls, input_of(x, rows), &one, 1);
            for (size_t i = 0; i < output.size(); ++i) {
                if (i / n != 5) {
                    ASSERT_EQ(output[i], expected[i]) << variant.name;
                } else if (std::isnan(bad)) {
                    ASSERT_TRUE(std::isnan(output[i])) << variant.name;
                } else {
                    ASSERT_FALSE(std::isfinite(output[i])) << variant.name;
                }
            }
        }
}

TEST(Bf16Linear, MatricesThatShareAnInputAreComputedTogetherAndTheirHeadsRotated) {
    std::mt19937 random(11);
    const size_t k = 160, rows = 70, size = 24;
    const std::vector<float> x = normal(rows * k, random);
    const std::vector<float> cos = normal(rows * size, random), sin = normal(rows * size, random);
    const PackedLinear q(make_matrix({WeightType::u4, 32, Zero::any}, 72, k, 0.01f, random).view);
    const PackedLinear v(make_matrix({WeightType::i8, 0}, 33, k, 0.001f, random).view);
    for (const Variant& variant : variants()) {
        std::vector<float> plain(rows * 72), rotated(rows * 72), other(rows * 33);
        const LinearOutput outputs[] = {{&q, plain.data()},
                                        {&v, other.data()},
                                        {&q, rotated.data(), nullptr, {size, nullptr, 0, true}}};
        quantized_linear_by(variant.calls, input_of(x, rows), outputs, 3,
                            {size, cos.data(), sin.data()});
        std::vector<float> alone(rows * 33);
        const LinearOutput one{&v, alone.data()};
        quantized_linear_by(variant.calls, input_of(x, rows), &one, 1);
        EXPECT_EQ(other, alone) << variant.name;
        for (size_t i = 0; i < plain.size(); ++i) {
            const size_t row = i / 72, at = i % size, half = size / 2;
            const double partner = at < half ? -plain[i + half] : plain[i - half];
            const double expected =
                double(plain[i]) * cos[row * size + at] + partner * sin[row * size + at];
            ASSERT_NEAR(rotated[i], expected, 1e-5) << "row " << row << ", " << variant.name;
        }
    }
}

// The parts' SwiGLU is libm's, so now and then an input of `down` is rounded the other way.
TEST(Bf16Linear, AGatedMlpIsItsPartsOneAfterTheOther) {
    std::mt19937 random(12);
    for (const size_t inner : {16, 48, 75, 320})
        for (const size_t rows : {1, 2, 16, 70, 75, 400})
            for (const size_t k : {96, rows < 3 ? 2100 : 700}) {
                const size_t n = 50;
                const bool floats = rows % 2 == 0;
                const Format q4_1{WeightType::u4, 32, Zero::fractional};
                const Format one = floats ? Format{WeightType::f16, 0} : q4_1;
                const Format other =
                    floats ? Format{WeightType::bf16, 0} : Format{WeightType::i8, 0};
                const PackedLinear gate(make_matrix(one, inner, k, 0.01f, random).view);
                const PackedLinear up(make_matrix(other, inner, k, 0.001f, random).view);
                const PackedLinear down(make_matrix(one, n, inner, 0.01f, random).view);
                const std::vector<float> x = normal(rows * k, random), gamma = normal(k, random);
                const std::vector<float> residual = normal(rows * n, random);
                for (const Variant& variant : variants()) {
                    std::vector<float> g(rows * inner), u(rows * inner), expected(rows * n);
                    const LinearInput input = input_of(x, rows, &gamma);
                    const LinearOutput both[] = {{&gate, g.data()}, {&up, u.data()}};
                    quantized_linear_by(variant.calls, input, both, 2);
                    for (size_t i = 0; i < g.size(); ++i) g[i] *= u[i] / (1 + std::exp(-g[i]));
                    const LinearOutput last{&down, expected.data(), residual.data()};
                    quantized_linear_by(variant.calls, input_of(g, rows), &last, 1);

                    std::vector<float> output = residual;  // in place
                    const GatedMlp mlp{&gate, &up, &down, output.data(), output.data()};
                    gated_mlp_by(variant.calls, input, mlp);
                    for (size_t i = 0; i < output.size(); ++i)
                        ASSERT_NEAR(output[i], expected[i], 1e-4 * double(k))
                            << "inner " << inner << ", rows " << rows << ", " << variant.name;
                }
            }
}

TEST(Bf16Linear, AnOutputMayBeTheInputOnAnyNumberOfThreads) {
    std::mt19937 random(13);
    const size_t k = 320, inner = 200, rows = 90;
    const Format q4_1{WeightType::u4, 32, Zero::fractional};
    const PackedLinear square(make_matrix(q4_1, k, k, 0.01f, random).view);
    const PackedLinear gate(make_matrix(q4_1, inner, k, 0.01f, random).view);
    const PackedLinear down(make_matrix(q4_1, k, inner, 0.01f, random).view);
    const std::vector<float> x = normal(rows * k, random), gamma = normal(k, random);
    for (const Variant& variant : variants()) {
        const auto run = [&](int threads, bool in_place) {
            std::vector<float> stream = x, other(rows * k);
            tbb::task_arena(threads).execute([&] {
                float* middle = in_place ? stream.data() : other.data();
                const LinearOutput one{&square, middle, stream.data()};
                quantized_linear_by(variant.calls, input_of(stream, rows, &gamma), &one, 1);
                LinearInput input = input_of(stream, rows, &gamma);
                input.x = middle;
                gated_mlp_by(variant.calls, input, {&gate, &gate, &down, stream.data(), middle});
            });
            return stream;
        };
        const std::vector<float> expected = run(1, false);
        for (const int threads : {1, 2, 3, 7, 70})
            for (int round = 0; round < 3; ++round)
                ASSERT_EQ(run(threads, true), expected) << threads << " threads, " << variant.name;
    }
}

// What perplexity of AMX's path is measured with: denormals, infinities and the order of sums too.
TEST(Bf16Linear, TilesByAvx512GiveTheEmulatedOnesBits) {
    if (!amx_model()) GTEST_SKIP() << "no AVX512_BF16";
    std::mt19937 random(15);
    LinearKernels emulated = Isa::scalar.kernels().linear;
    emulated.bf16 = amx::bf16_kernels<PlainVectors, EmulatedTiles>(emulated.bf16);
    emulated.bf16.unpack = amx_model()->kernels().linear.bf16.unpack;
    const size_t n = 50, k = 1100, rows = 35;
    const Matrix m = make_matrix({WeightType::u4, 32, Zero::none}, n, k, 6e-8f, random);
    const PackedLinear packed(m.view);
    for (const float deviation : {1.0f, 1e-31f, 1e-38f, 3e38f}) {
        const std::vector<float> x = normal(rows * k, random, deviation);
        std::vector<float> expected(rows * n), output(rows * n);
        LinearOutput one{&packed, expected.data()};
        quantized_linear_by(emulated, input_of(x, rows), &one, 1);
        one.output = output.data();
        quantized_linear_by(amx_model()->kernels().linear, input_of(x, rows), &one, 1);
        for (size_t i = 0; i < output.size(); ++i) {
            if (std::isnan(expected[i]) && std::isnan(output[i])) continue;
            ASSERT_EQ(std::memcmp(&output[i], &expected[i], sizeof output[i]), 0)
                << output[i] << " for " << expected[i] << ", deviation " << deviation;
        }
    }
}

TEST(Bf16Linear, RefusesAGateInBf16BesideAnUpOfIntegers) {
    std::mt19937 random(21);
    const PackedLinear floats(make_matrix({WeightType::bf16, 0}, 32, 32, 1, random).view);
    const PackedLinear integers(make_matrix({WeightType::u4, 32}, 32, 32, 1, random).view);
    std::vector<float> x(32), y(32);
    for (const Variant& variant : variants())
        EXPECT_THROW(
            gated_mlp_by(variant.calls, input_of(x, 1), {&floats, &integers, &integers, y.data()}),
            std::runtime_error)
            << variant.name;
}

TEST(Bf16Linear, RefusesKernelsWithoutProductsOfBf16) {
    LinearKernels none = Isa::scalar.kernels().linear;
    none.bf16 = {};
    const Format format{WeightType::u4, 32};
    std::mt19937 random(14);
    const PackedLinear square(make_matrix(format, 32, 32, 1, random).view);
    std::vector<float> x(32), y(32);
    const LinearOutput one{&square, y.data()};
    EXPECT_THROW(quantized_linear_by(none, input_of(x, 1), &one, 1), std::runtime_error);
    const GatedMlp mlp{&square, &square, &square, y.data()};
    EXPECT_THROW(gated_mlp_by(none, input_of(x, 1), mlp), std::runtime_error);
}

}  // namespace
}  // namespace pagewheel::kernels
