#include "sampling/candidates.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace pagewheel {
namespace {

using Float = std::numeric_limits<float>;
constexpr uint32_t last_id = std::numeric_limits<uint32_t>::max();
constexpr size_t run_length = 1024;  // tokens that a draw adds up at once

/// A part of a run with the sum of weights up to its end.
struct Run {
    double sum;
    size_t begin, end;
    LogitLimits limits;
};

/// What a thread keeps from token to token, so that none allocates.
struct Workspace {
    Scratch<float> maxima, heap;
    Scratch<float> weights;  // of a row
    Scratch<float> distances;
    TokenList list;
    CutoffSearch search;
    std::vector<Run> runs;
};

Workspace& workspace() {
    static thread_local Workspace own;
    return own;
}

size_t count_groups(size_t n) {
    return (n + kernels::group_size - 1) / kernels::group_size;
}

/// The least float that is not below x, and the greatest that is not above.
float ceil_float(double x) {
    if (!(x > double(Float::lowest()))) return Float::lowest();
    const auto rounded = float(std::min(x, double(Float::max())));
    return double(rounded) < x ? std::nextafter(rounded, Float::infinity()) : rounded;
}
float floor_float(double x) {
    return -ceil_float(-x);
}

}  // namespace

LogitsMaxima::LogitsMaxima(const float* logits, size_t n, Isa isa) : m_logits(logits), m_size(n) {
    const size_t num_groups = count_groups(n);
    float* groups = workspace().maxima.at_least(num_groups);
    const auto& kernels = kernels::logits_kernels(isa);
    const bool has_no_nan = kernels.find_maxima(logits, n, groups);
    m_groups = groups;
    m_best = has_no_nan ? groups[kernels.argmax(groups, num_groups)] : 0.0f;
    if (!has_no_nan || !std::isfinite(m_best)) find_best_token(logits, n, isa);  // throws
}

Candidates::Candidates(const LogitsMaxima& row, double scale, Isa isa)
    : m_kernels(&kernels::logits_kernels(isa)),
      m_reference(row.best()),
      m_scale(scale),
      m_view{row.logits(), nullptr, nullptr, row.size(), 0, row.groups()},
      m_first{row.best(), 0},
      m_last{Float::lowest(), last_id} {}

size_t Candidates::index_of(uint32_t id) const {
    if (!m_view.ids) return std::min<size_t>(id, m_view.size);
    return size_t(std::lower_bound(m_view.ids, m_view.ids + m_view.size, id) - m_view.ids);
}

template <class Body>
void Candidates::for_parts(const Body& body) const {
    const size_t first = index_of(m_first.id);
    const size_t last = m_last.id == last_id ? m_view.size : index_of(m_last.id + 1);
    size_t begin = 0;
    for (const size_t end : {std::min(first, last), std::max(first, last), m_view.size}) {
        if (begin == end) continue;
        LogitLimits part = limits();
        if (begin < first) part.high = next_below(part.high);
        if (begin >= last) part.low = next_above(part.low);
        body(begin, end, part);
        begin = end;
    }
}

void Candidates::compact() {
    if (m_is_compact) return;
    kernels::TokenColumns columns = workspace().list.columns(m_view.size);
    if (!m_view.weights) columns.weights = nullptr;
    kernels::Kept all;
    for_parts([&](size_t begin, size_t end, const LogitLimits& part) {
        const kernels::Kept kept =
            keep_between(*m_kernels, m_view, begin, end, part, columns.from(all.count));
        all.count += kept.count;
        all.inside += kept.inside;
    });
    m_view = {columns.logits, columns.weights, columns.ids, all.count};
    m_total = all.inside;
    m_is_compact = true;
}

double Candidates::total() {
    compact();
    if (m_view.weights) return m_total;
    float* weights = m_view.ids ? workspace().list.columns(m_view.size).weights
                                : workspace().weights.at_least(m_view.size);
    m_total = m_kernels->weigh(m_view.logits, m_view.size, m_reference, float(m_scale), weights);
    m_view.weights = weights;
    return m_total;
}

double Candidates::best() {
    if (!m_first_is_a_token) {
        compact();
        m_first.logit = m_view.logits[m_kernels->argmax(m_view.logits, m_view.size)];
        m_first_is_a_token = true;
    }
    return double(m_first.logit);
}

double Candidates::mean_logit() {
    const double sum = total();
    return double(m_reference) +
           m_kernels->sum_weighted(m_view.logits, m_view.weights, m_view.size, m_reference) / sum;
}

double Candidates::entropy() {
    const double sum = total();
    return std::log(sum) - (mean_logit() - double(m_reference)) * m_scale;
}

double Candidates::deviation() {
    compact();
    const kernels::Moments all = m_kernels->moments(m_view.logits, m_view.size, m_reference);
    const double mean = all.sum / double(all.count);
    return std::sqrt(std::max(0.0, all.squares / double(all.count) - mean * mean));
}

double Candidates::logit_of(double probability) {
    return double(m_reference) + std::log(probability * total()) / m_scale;
}

double Candidates::logit_below_best(double ratio) {
    return best() + std::log(ratio) / m_scale;
}

void Candidates::set_last(const TokenPlace& place) {
    if (place.logit < m_last.logit || (place.logit == m_last.logit && place.id >= m_last.id))
        return;
    m_last = place;
    m_is_compact = false;
}

void Candidates::keep_from(double logit) {
    // The best one stays, also where the limit is no number.
    set_last({ceil_float(logit < best() ? logit : best()), last_id});
}

float Candidates::least_by_maxima(double wanted, bool by_weight) const {
    constexpr size_t most = 128;
    if (!m_view.maxima || (!by_weight && wanted > double(most))) return Float::lowest();
    const size_t num_groups = count_groups(m_view.size);
    const auto scale = float(m_scale);
    if (by_weight && m_kernels->sum_exp(m_view.maxima, num_groups, m_reference, scale) < wanted)
        return Float::lowest();  // a flat row
    float* heap = workspace().heap.at_least(num_groups);
    float* end = std::copy_n(m_view.maxima, num_groups, heap);
    std::make_heap(heap, end);
    for (size_t i = 0; i < most && end > heap; ++i) {
        std::pop_heap(heap, end--);
        wanted -= by_weight ? std::exp(double(*end - m_reference) * m_scale) : 1;
        if (wanted < 0 || (wanted == 0 && !by_weight)) return *end;
    }
    return Float::lowest();
}

void Candidates::keep_best(size_t count) {
    compact();
    if (count >= m_view.size) return;
    kernels::TokenView tokens = m_view;
    tokens.weights = nullptr;
    LogitLimits within = limits();
    const float least = least_by_maxima(double(count), false);
    within.low = std::max(within.low, least);
    set_last(workspace().search.find(*m_kernels, tokens, within, double(count), double(m_view.size),
                                     least > Float::lowest()));
}

void Candidates::list_from(float low) {
    const kernels::TokenColumns columns = workspace().list.columns(m_view.size);
    const LogitLimits within{low, m_first.logit};
    const size_t count = keep_between(*m_kernels, m_view, 0, m_view.size, within,
                                      {columns.logits, nullptr, columns.ids})
                             .count;
    m_total = m_kernels->weigh(columns.logits, count, m_reference, float(m_scale), columns.weights);
    m_view = {columns.logits, columns.weights, columns.ids, count};
}

float Candidates::least_of_nucleus(double probability, double sum) const {
    // What weighs less than this does not fill the rest, if all were of that kind. A little lower,
    // for rounding.
    const double lightest = std::log((1 - probability) * sum / double(m_view.size)) - 1e-3;
    return ceil_float(double(m_reference) + lightest / m_scale);
}

bool Candidates::is_flat(double probability) const {
    constexpr size_t sample_size = 128;
    float sample[sample_size];
    if (m_view.size < sample_size) return true;
    const size_t stride = m_view.size / sample_size;
    for (size_t i = 0; i < sample_size; ++i) sample[i] = m_view.logits[i * stride + stride / 2];
    const auto scale = float(m_scale);
    // The sample of a peaked row lacks what weighs most.
    const double sum =
        std::max(m_kernels->sum_exp(sample, sample_size, m_reference, scale) * double(stride),
                 m_kernels->sum_exp(m_view.maxima, count_groups(m_view.size), m_reference, scale));
    const float least = least_of_nucleus(probability, sum);
    const auto found = std::count_if(sample, sample + sample_size,
                                     [least](float logit) { return logit >= least; });
    return size_t(found) > sample_size / 2;
}

void Candidates::keep_nucleus(double probability) {
    const bool is_listed = m_is_compact && !m_view.ids && !m_view.weights && !is_flat(probability);
    const double sum =
        is_listed ? m_kernels->sum_exp(m_view.logits, m_view.size, m_reference, float(m_scale))
                  : total();
    const float least = least_by_maxima(probability * sum, true);
    LogitLimits within = limits();
    within.low = std::max({within.low, least, least_of_nucleus(probability, sum)});
    if (is_listed) list_from(within.low);
    set_last(workspace().search.find(*m_kernels, m_view, within, probability * sum, sum,
                                     least > Float::lowest()));
}

void Candidates::keep_nearest(double logit, double probability) {
    const double sum = total();
    const auto centre = float(logit);
    kernels::TokenView tokens = m_view;
    float* distances = workspace().distances.at_least(m_view.size);
    m_kernels->negate_distances(m_view.logits, m_view.size, centre, distances);
    tokens.logits = distances;
    tokens.maxima = nullptr;  // those of logits
    const TokenPlace cutoff = workspace().search.find(*m_kernels, tokens, {Float::lowest(), 0.0f},
                                                      probability * sum, sum);
    // What rounds to this distance, too.
    const double farthest = -double(cutoff.logit) * (1 + 0x1p-24);
    set_last({ceil_float(double(centre) - farthest), last_id});
    const float high = floor_float(double(centre) + farthest);
    if (high >= m_first.logit) return;
    m_first = {high, 0};
    m_first_is_a_token = m_is_compact = false;
}

void Candidates::leave_out_best_down_to(double logit) {
    compact();
    const float low = ceil_float(logit);
    if (!(logit <= best())) return;
    // The last of them: the least, and of equals the one with the highest id.
    TokenPlace last = m_first;
    for (size_t i = m_kernels->find_above(m_view.logits, 0, m_view.size, next_below(low));
         i < m_view.size;
         i = m_kernels->find_above(m_view.logits, i + 1, m_view.size, next_below(low)))
        if (m_view.logits[i] <= last.logit) last = {m_view.logits[i], id(i)};
    m_first = last;
    m_is_compact = false;
}

double Candidates::weight(size_t i) const {
    if (m_view.weights) return double(m_view.weights[i]);
    return kernels::scalar_logits.sum_exp(m_view.logits + i, 1, m_reference, float(m_scale));
}

Candidates::Drawn Candidates::draw(double point) {
    if (!m_view.weights) compact();  // what is not weighed yet is added up without limits
    std::vector<Run>& runs = workspace().runs;
    runs.clear();
    double sum = 0;
    for_parts([&](size_t part_begin, size_t part_end, const LogitLimits& part) {
        for (size_t begin = part_begin; begin < part_end; begin += run_length) {
            const size_t end = std::min(begin + run_length, part_end);
            const float* logits = m_view.logits + begin;
            sum += m_view.weights
                       ? m_kernels->sum_between(logits, m_view.weights + begin, end - begin,
                                                part.low, part.high)
                       : m_kernels->sum_exp(logits, end - begin, m_reference, float(m_scale));
            runs.push_back({sum, begin, end, part});
        }
    });
    point *= sum;
    // Rounding may have made it the sum of all: then it is the last that weighs anything.
    auto run = std::upper_bound(runs.begin(), runs.end(), point,
                                [](double value, const Run& other) { return value < other.sum; });
    if (run == runs.end())
        run = std::lower_bound(runs.begin(), runs.end(), sum,
                               [](const Run& other, double value) { return other.sum < value; });
    double before = run == runs.begin() ? 0.0 : (run - 1)->sum;
    size_t chosen = run->end;
    for (size_t i = run->begin; i < run->end && (chosen == run->end || before <= point); ++i) {
        if (!run->limits.has(m_view.logits[i]) || weight(i) == 0) continue;
        before += weight(i);
        chosen = i;
    }
    if (chosen == run->end) return best_left();
    const double exponent = double(m_view.logits[chosen] - m_reference) * m_scale;
    return {id(chosen), exponent - std::log(sum)};
}

Candidates::Drawn Candidates::best_left() const {
    size_t best = m_view.size;
    for_parts([&](size_t begin, size_t end, const LogitLimits& part) {
        for (size_t i = begin; i < end; ++i)
            if (part.has(m_view.logits[i]) &&
                (best == m_view.size || m_view.logits[i] > m_view.logits[best]))
                best = i;
    });
    return {id(best), 0.0};
}

}  // namespace pagewheel
