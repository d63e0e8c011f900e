#include "eviction/triattention.hpp"

#include <cmath>
#include <complex>

namespace pagewheel {
namespace {

constexpr size_t num_distances = 17;  // 1, 2, 4 ... 65,536

/// Keys by kv head, pair and token, turned by the angle of their distance from the next token.
struct TurnedKeys {
    std::vector<float> x, y, length;  // [kv heads, pairs, tokens]
};

TurnedKeys turned_keys(const EvictionView& view) {
    const size_t n = view.num_tokens, pairs = view.head_size / 2, rows = view.kv_heads * pairs;
    std::vector<float> keys(n * view.kv_heads * view.head_size);
    view.read_unrotated_keys(0, n, keys.data());
    TurnedKeys turned{std::vector<float>(rows * n), std::vector<float>(rows * n),
                      std::vector<float>(rows * n)};
    for (size_t f = 0; f < pairs; ++f) {
        const std::complex<double> step = std::polar(1.0, view.inverse_frequencies[f]);
        std::complex<double> turn = step;  // of the last token, whose distance is 1
        for (size_t i = n; i-- > 0; turn *= step)
            for (size_t h = 0; h < view.kv_heads; ++h) {
                const float* key = keys.data() + (i * view.kv_heads + h) * view.head_size + f;
                const std::complex<double> k{double(key[0]), double(key[pairs])};
                const std::complex<double> r = std::conj(k) * turn;
                const size_t at = (h * pairs + f) * n + i;
                turned.x[at] = float(r.real());
                turned.y[at] = float(r.imag());
                turned.length[at] = float(std::abs(k));
            }
    }
    return turned;
}

/// The mean of exp(i * frequency * distance) over all distances.
std::complex<double> mean_turn(double frequency) {
    std::complex<double> sum = 0;
    for (size_t i = 0; i < num_distances; ++i)
        sum += std::polar(1.0, frequency * double(size_t(1) << i));
    return sum / double(num_distances);
}

/// Adds a head's scores [tokens] at mean 0 and variance 1.
void add_normalised(const std::vector<float>& head, std::vector<double>& scores) {
    double sum = 0, squares = 0;
    for (float score : head) sum += double(score);
    const double mean = sum / double(head.size());
    for (float score : head) squares += (double(score) - mean) * (double(score) - mean);
    const double deviation = std::sqrt(squares / double(head.size())) + 1e-6;
    for (size_t i = 0; i < head.size(); ++i) scores[i] += (double(head[i]) - mean) / deviation;
}

}  // namespace

std::vector<double> triattention_scores(const EvictionView& view) {
    const size_t n = view.num_tokens, pairs = view.head_size / 2;
    const TurnedKeys keys = turned_keys(view);
    std::vector<double> scores(n, 0);
    std::vector<float> head(n);
    for (size_t h = 0; h < view.heads; ++h) {
        std::fill(head.begin(), head.end(), 0.0f);
        for (size_t f = 0; f < pairs; ++f) {
            const float* mean = view.query_mean + h * view.head_size + f;
            const std::complex<double> centre{double(mean[0]), double(mean[pairs])};
            const std::complex<double> q = centre * mean_turn(view.inverse_frequencies[f]);
            const auto real = float(q.real()), imaginary = float(q.imag());
            const float strays = view.query_magnitude[h * pairs + f] - float(std::abs(centre));
            const size_t row = (h / (view.heads / view.kv_heads) * pairs + f) * n;
            const float *x = keys.x.data() + row, *y = keys.y.data() + row;
            const float* length = keys.length.data() + row;
            for (size_t i = 0; i < n; ++i)
                head[i] += real * x[i] - imaginary * y[i] + strays * length[i];
        }
        add_normalised(head, scores);
    }
    for (double& score : scores) score /= double(view.heads);
    return scores;
}

}  // namespace pagewheel
