// Routed experts of every ISA and weight format against the layer in double, and to the bit against
// rows alone.
#include "kernels/experts.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernels.hpp"
#include "pagewheel/errors.hpp"
#include "support/kernel_access.hpp"
#include "support/linear_matrix.hpp"

namespace pagewheel::kernels {
namespace {

std::vector<float> normal(size_t n, std::mt19937& random, float deviation = 1) {
    std::normal_distribution<float> distribution(0, deviation);
    std::vector<float> x(n);
    for (float& v : x) v = distribution(random);
    return x;
}

/// A layer's experts and their weights in double.
struct Layer {
    size_t k, inner, n;
    std::vector<Matrix> gates, ups, downs;
    Experts experts;

    Layer(const Format& format, size_t count, size_t k, size_t inner, size_t n, bool biases,
          GateFunction function, std::mt19937& random)
        : k(k), inner(inner), n(n) {
        experts.function = function;
        for (size_t e = 0; e < count; ++e) {
            gates.push_back(make_matrix(format, inner, k, 0.02f, random));
            ups.push_back(make_matrix(format, inner, k, 0.02f, random));
            downs.push_back(make_matrix(format, n, inner, 0.02f, random));
            Expert expert{PackedLinear(gates[e].view),
                          PackedLinear(ups[e].view),
                          PackedLinear(downs[e].view),
                          {},
                          {},
                          {}};
            if (biases) {
                expert.gate_bias = normal(inner, random);
                expert.up_bias = normal(inner, random);
                expert.down_bias = normal(n, random);
            }
            experts.experts.push_back(std::move(expert));
        }
    }

    double function(double gate, double up) const {
        const GateFunction& f = experts.function;
        switch (f.kind) {
            case GateFunction::Kind::silu:
                return gate / (1 + std::exp(-gate)) * up;
            case GateFunction::Kind::clamped_silu:
                gate = std::min(gate, double(f.limit));
                up = std::clamp(up, -double(f.limit), double(f.limit));
                return gate / (1 + std::exp(-double(f.alpha) * gate)) * (up + 1);
            case GateFunction::Kind::gelu_tanh:
                return 0.5 * gate *
                       (1 +
                        std::tanh(std::sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate))) *
                       up;
        }
        __builtin_unreachable();
    }

    std::vector<double> expected(size_t e, const float* x) const {
        const auto product = [&](const Matrix& m, const auto* in, const std::vector<float>& bias) {
            std::vector<double> out(m.view.n);
            for (size_t i = 0; i < m.view.n; ++i) {
                out[i] = bias.empty() ? 0 : double(bias[i]);
                for (size_t j = 0; j < m.view.k; ++j)
                    out[i] += m.w[i * m.view.k + j] * double(in[j]);
            }
            return out;
        };
        const Expert& expert = experts.experts[e];
        std::vector<double> gate = product(gates[e], x, expert.gate_bias);
        const std::vector<double> up = product(ups[e], x, expert.up_bias);
        for (size_t i = 0; i < inner; ++i) gate[i] = function(gate[i], up[i]);
        return product(downs[e], gate.data(), expert.down_bias);
    }
};

/// Rows and what a router gave them.
struct Input {
    size_t rows, active;
    std::vector<float> x, weights;
    std::vector<uint32_t> chosen;

    Input(size_t rows, size_t active, const Layer& layer, std::mt19937& random)
        : rows(rows), active(active), x(normal(rows * layer.k, random)) {
        std::vector<uint32_t> numbers(layer.experts.experts.size());
        std::iota(numbers.begin(), numbers.end(), 0u);
        for (size_t r = 0; r < rows; ++r) {
            std::shuffle(numbers.begin(), numbers.end(), random);
            chosen.insert(chosen.end(), numbers.begin(), numbers.begin() + long(active));
        }
        weights = normal(rows * active, random);
    }
    LinearInput linear(size_t row, size_t count, size_t k) const {
        LinearInput input;
        input.x = x.data() + row * k;
        input.rows = count;
        return input;
    }
    Routing routing(size_t row = 0) const {
        return {active, chosen.data() + row * active, weights.data() + row * active};
    }
};

/// Kernels that this processor runs, by name, and the activations that they take.
struct Variant {
    std::string name;
    LinearKernels kernels;
    std::vector<Activations> activations;
};

std::vector<Variant> variants() {
    std::vector<Variant> all;
    for (const Isa isa : available_isas()) {
        Variant variant{isa.name(), isa.kernels().linear, {Activations::int8, Activations::int16}};
        if (has_bf16_activations(isa)) variant.activations.push_back(Activations::bf16);
        all.push_back(variant);
    }
    return all;
}

std::vector<float> run(const Variant& variant, Activations activations, const Layer& layer,
                       const Input& input, size_t row, size_t rows,
                       const std::vector<float>& residual = {}) {
    std::vector<float> output(rows * layer.n + 16, NAN);
    routed_experts_by(
        variant.kernels, input.linear(row, rows, layer.k), layer.experts, input.routing(row),
        [&](size_t) { return activations; }, output.data(),
        residual.empty() ? nullptr : residual.data() + row * layer.n);
    for (size_t i = rows * layer.n; i < output.size(); ++i)
        EXPECT_TRUE(std::isnan(output[i])) << "written past the end, " << variant.name;
    output.resize(rows * layer.n);
    return output;
}

/// The layer's output, [rows, n].
std::vector<double> expected(const Layer& layer, const Input& input,
                             const std::vector<float>& residual = {}) {
    std::vector<double> sums(residual.begin(), residual.end());
    sums.resize(input.rows * layer.n);
    for (size_t at = 0; at < input.chosen.size(); ++at) {
        const size_t r = at / input.active;
        const auto one = layer.expected(input.chosen[at], input.x.data() + r * layer.k);
        for (size_t i = 0; i < layer.n; ++i)
            sums[r * layer.n + i] += double(input.weights[at]) * one[i];
    }
    return sums;
}

/// Of the root mean square of what is expected, that of the difference.
double relative_error(const std::vector<double>& expected, const std::vector<float>& output) {
    double squares = 0, differences = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
        squares += expected[i] * expected[i];
        differences += std::pow(expected[i] - double(output[i]), 2);
    }
    return std::sqrt(differences / squares);
}

double tolerance(Activations activations) {
    switch (activations) {
        case Activations::int8:
            return 0.03;
        case Activations::int16:
            return 0.004;
        case Activations::bf16:
            return 0.012;
    }
    __builtin_unreachable();
}

void expect_layer(const Layer& layer, const Input& input, const std::string& what,
                  const std::vector<float>& residual = {}) {
    const bool floats = layer.experts.experts[0].gate.is_bf16();
    const std::vector<double> sums = expected(layer, input, residual);
    for (const Variant& variant : variants())
        for (const Activations activations : variant.activations) {
            if (floats && activations != Activations::bf16) continue;
            const auto output = run(variant, activations, layer, input, 0, input.rows, residual);
            EXPECT_LT(relative_error(sums, output), tolerance(activations))
                << what << ", " << variant.name << ", activations " << int(activations);
        }
}

const Format q4_1{WeightType::u4, 32, Zero::fractional};

TEST(RoutedExperts, AreTheLayerInDoubleForEveryFormat) {
    std::mt19937 random(1);
    size_t i = 0;
    for (const Format& format : all_formats()) {
        const Layer layer(format, 5, 96, 40 + i % 30, 50, false, {}, random);
        expect_layer(layer, Input(12 + i++ % 12, 2, layer, random), name_of(format));
    }
}

TEST(RoutedExperts, TakeAnyNumberOfRows) {
    std::mt19937 random(2);
    for (const Format& format : {q4_1, Format{WeightType::f16, 0}}) {
        const Layer layer(format, 6, 70, 50, 35, false, {}, random);
        for (const size_t rows : {1, 2, 7, 8, 9, 24, 25, 64, 300, 1500, 4096}) {
            const Input input(rows, 2, layer, random);
            expect_layer(layer, input, std::to_string(rows) + " rows", normal(rows * 35, random));
        }
    }
}

TEST(RoutedExperts, OneIsChosenByAllRowsAndOneByNone) {
    std::mt19937 random(3);
    const Layer layer(q4_1, 4, 64, 48, 32, false, {}, random);
    for (const size_t rows : {3, 40}) {
        Input input(rows, 1, layer, random);
        std::fill(input.chosen.begin(), input.chosen.end(), 2u);
        expect_layer(layer, input, "one for all");
    }
}

TEST(RoutedExperts, EachRowHasAllOfThem) {
    std::mt19937 random(4);
    const Layer layer(q4_1, 5, 64, 48, 32, false, {}, random);
    for (const size_t rows : {1, 9, 33}) expect_layer(layer, Input(rows, 5, layer, random), "all");
}

TEST(RoutedExperts, HaveBiasesAndFunctionsOfTheirOwn) {
    std::mt19937 random(5);
    GateFunction clamped, gelu;
    clamped.kind = GateFunction::Kind::clamped_silu;
    clamped.limit = 1.5f;
    clamped.alpha = 1.702f;
    gelu.kind = GateFunction::Kind::gelu_tanh;
    for (const GateFunction& function : {GateFunction(), clamped, gelu})
        for (const bool biases : {false, true}) {
            const Layer layer(q4_1, 5, 64, 41, 35, biases, function, random);
            for (const size_t rows : {1, 30})
                expect_layer(layer, Input(rows, 3, layer, random),
                             "function " + std::to_string(int(function.kind)));
        }
}

TEST(RoutedExperts, MayHaveActivationsOfTheirOwn) {
    std::mt19937 random(9);
    const Layer layer(q4_1, 5, 70, 48, 32, false, {}, random);
    const size_t rows = 20;
    Input input(rows, 3, layer, random);
    for (size_t r = 3; r < rows; ++r)  // all choose expert 0, and few experts 3 and 4
        for (size_t j = 0; j < 3; ++j) input.chosen[r * 3 + j] = uint32_t(2 - j);
    const std::vector<double> sums = expected(layer, input);
    for (const Variant& variant : variants())
        for (const Activations many : variant.activations) {
            std::vector<float> output(rows * layer.n);
            routed_experts_by(
                variant.kernels, input.linear(0, rows, layer.k), layer.experts, input.routing(),
                [&](size_t count) { return count < 4 ? Activations::int16 : many; }, output.data(),
                nullptr);
            EXPECT_LT(relative_error(sums, output), tolerance(many)) << variant.name;
        }
}

// Else an answer would depend on which other requests share its step.
TEST(RoutedExperts, ARowIsTheSameToTheBitAlone) {
    std::mt19937 random(6);
    for (const Format& format : {q4_1, Format{WeightType::bf16, 0}}) {
        const Layer layer(format, 6, 96, 70, 50, true, {}, random);
        const size_t rows = 90;
        const Input input(rows, 3, layer, random);
        for (const Variant& variant : variants())
            for (const Activations activations : variant.activations) {
                if (is_float(format.type) && activations != Activations::bf16) continue;
                const std::vector<float> all = run(variant, activations, layer, input, 0, rows);
                for (const size_t row : {size_t(0), size_t(41), rows - 1}) {
                    const std::vector<float> alone =
                        run(variant, activations, layer, input, row, 1);
                    for (size_t i = 0; i < layer.n; ++i)
                        ASSERT_EQ(all[row * layer.n + i], alone[i])
                            << variant.name << ", activations " << int(activations) << ", row "
                            << row;
                }
            }
    }
}

TEST(RoutedExperts, RefuseAnExpertThatThereIsNot) {
    std::mt19937 random(7);
    const Layer layer(q4_1, 4, 64, 48, 32, false, {}, random);
    Input input(2, 1, layer, random);
    input.chosen[1] = 4;
    std::vector<float> output(64);
    EXPECT_THROW(
        routed_experts(input.linear(0, 2, 64), layer.experts, input.routing(),
                       ActivationPrecision::automatic, output.data(), nullptr, detected_isa()),
        InvalidArgument);
}

TEST(RoutedExperts, RefuseStacksThatDoNotFit) {
    std::mt19937 random(8);
    Layer layer(q4_1, 2, 64, 48, 32, false, {}, random);
    EXPECT_NO_THROW(check_experts(layer.experts));
    layer.experts.experts[1].up_bias.resize(3);
    EXPECT_THROW(check_experts(layer.experts), InvalidArgument);
    EXPECT_THROW(check_experts(Experts()), InvalidArgument);
    layer.experts.experts[1] =
        Layer({WeightType::bf16, 0}, 1, 64, 48, 32, false, {}, random).experts.experts[0];
    EXPECT_THROW(check_experts(layer.experts), InvalidArgument) << "integers and floats";
}

}  // namespace
}  // namespace pagewheel::kernels
