#include "sampling/cutoff.hpp"

#include <algorithm>
#include <cmath>

namespace pagewheel {

using kernels::Kept;

Kept keep_between(const kernels::LogitsKernels& kernels, const kernels::TokenView& tokens,
                  size_t begin, size_t end, const LogitLimits& limits,
                  const kernels::TokenColumns& out) {
    Kept all;
    const auto keep = [&](size_t from, size_t to) {
        const Kept kept = kernels.keep_between(tokens.part(from, to), limits.low, limits.high,
                                               out.from(all.count));
        all = {all.count + kept.count, all.inside + kept.inside, all.above + kept.above};
    };
    if (!tokens.maxima) {
        keep(begin, end);
        return all;
    }
    const auto has_any = [&](size_t i) {
        return tokens.maxima[i / kernels::group_size] >= limits.low;
    };
    const auto end_of_group = [&](size_t i) {
        return std::min(end, (i / kernels::group_size + 1) * kernels::group_size);
    };
    while (begin < end) {
        const size_t from = begin;
        while (begin < end && has_any(begin)) begin = end_of_group(begin);
        if (from < begin) keep(from, begin);
        if (begin < end) begin = end_of_group(begin);
    }
    return all;
}

TokenPlace CutoffSearch::find(const kernels::LogitsKernels& kernels,
                              const kernels::TokenView& tokens, const LogitLimits& limits,
                              double wanted, double total, bool few_within) {
    m_kernels = &kernels;
    m_view = tokens;
    m_limits = limits;
    m_is_tight = false;
    m_wanted = wanted;
    m_amount = total;
    m_before = 0;
    if (m_view.size > few && !few_within) {
        if (m_view.weights && m_view.size <= halved)
            narrow(halve());
        else
            narrow(choose_pivots());
    }
    // Where the pivots missed the cutoff, what they left is all that is known.
    while (m_limits.low < m_limits.high && (m_view.size > few || !m_is_tight))
        narrow(m_is_tight ? choose_pivots() : m_limits);
    return m_limits.low < m_limits.high ? find_among_few() : find_among_equals();
}

void CutoffSearch::narrow(const LogitLimits& pivots) {
    const Kept kept = keep(pivots);
    if (m_before + kept.above >= m_wanted && pivots.high < m_limits.high) {
        m_limits.low = next_above(pivots.high);
        m_is_tight = false;
    } else if (m_before + kept.above + kept.inside < m_wanted && pivots.low > m_limits.low) {
        m_limits.high = next_below(pivots.low);
        m_is_tight = false;
    } else {
        go_on_with_kept(kept, pivots);
    }
}

LogitLimits CutoffSearch::halve() const {
    LogitLimits limits = m_limits;
    double before = m_before;
    for (int i = 0; i < 7 && limits.low < limits.high; ++i) {
        const float middle = limits.low + (limits.high - limits.low) / 2;
        const double upper =
            m_kernels->sum_between(m_view.logits, m_view.weights, m_view.size, middle, limits.high);
        if (before + upper >= m_wanted) {
            limits.low = middle;
        } else {
            before += upper;
            limits.high = next_below(middle);
        }
    }
    return limits;
}

Kept CutoffSearch::keep(const LogitLimits& limits) {
    return keep_between(*m_kernels, m_view, 0, m_view.size, limits,
                        m_lists[m_next_list].columns(m_view.size));
}

void CutoffSearch::go_on_with_kept(const Kept& kept, const LogitLimits& limits) {
    const kernels::TokenColumns columns = m_lists[m_next_list].columns(m_view.size);
    m_view = {columns.logits, m_view.weights ? columns.weights : nullptr, columns.ids, kept.count};
    m_next_list = 1 - m_next_list;
    m_limits = limits;
    m_is_tight = true;
    m_before += kept.above;
    m_amount = kept.inside;
}

size_t CutoffSearch::take_sample(Sample* sample) const {
    const size_t stride = m_view.size / sample_size;
    for (size_t i = 0; i < sample_size; ++i) {
        const size_t at = i * stride + stride / 2;
        sample[i] = {m_view.logits[at], float(amount(at))};
    }
    std::sort(sample, sample + sample_size,
              [](const Sample& a, const Sample& b) { return a.logit > b.logit; });
    return sample_size;
}

LogitLimits CutoffSearch::choose_pivots() const {
    Sample all[sample_size];
    const size_t size = take_sample(all);
    const Sample* begin = std::find_if(
        all, all + size, [&](const Sample& sample) { return sample.logit <= m_limits.high; });
    const auto end =
        std::find_if(begin, static_cast<const Sample*>(all + size),
                     [&](const Sample& sample) { return sample.logit < m_limits.low; });
    const auto inside = size_t(end - begin);
    // Few are within the limits: to have them alone is worth a pass.
    if (!m_is_tight && inside < size / 8) return m_limits;
    double sum = 0;
    for (const Sample& sample : all) sum += double(sample.amount);
    LogitLimits pivots = m_limits;
    // The sample of a peaked row lacks the tokens that weigh much, which are the best: the cutoff
    // is among the few that are better than nearly all of the sample.
    if (sum * double(m_view.size) < 0.75 * m_amount * double(size))
        pivots.low = begin[std::min<size_t>(4, inside - 1)].logit;
    else
        pivots = enclose(all, size, (m_wanted - m_before) / m_amount, m_limits);
    // Something is to be left out: a half, or where half are equals one value.
    const bool is_narrower = pivots.low > m_limits.low || pivots.high < m_limits.high;
    if (m_is_tight && !is_narrower)
        pivots.low = std::max(begin[inside / 2].logit, next_above(m_limits.low));
    return pivots;
}

LogitLimits CutoffSearch::enclose(const Sample* sample, size_t size, double share,
                                  const LogitLimits& limits) {
    double sum = 0, before = 0, squares = 0;
    for (size_t i = 0; i < size; ++i) sum += double(sample[i].amount);
    // The deviation of the share that the tokens before the cutoff have in such a sample.
    for (size_t i = 0; i < size; ++i) {
        const double part = before < share * sum ? 1 - share : share;
        before += double(sample[i].amount);
        squares += std::pow(part * double(sample[i].amount), 2);
    }
    const double margin = 2.5 * std::sqrt(squares) + 0.5 * sum / double(size);
    LogitLimits pivots = limits;
    before = 0;
    for (size_t i = 0; i < size; ++i) {
        if (before < share * sum - margin) pivots.high = sample[i].logit;
        before += double(sample[i].amount);
        if (before < share * sum + margin) continue;
        pivots.low = sample[i].logit;
        break;
    }
    pivots.high = std::clamp(pivots.high, limits.low, limits.high);
    pivots.low = std::clamp(pivots.low, limits.low, pivots.high);
    return pivots;
}

TokenPlace CutoffSearch::find_among_few() {
    uint16_t order[few];
    uint16_t* end = order + m_view.size;
    for (size_t i = 0; i < m_view.size; ++i) order[i] = uint16_t(i);
    const auto is_worse = [&](uint16_t a, uint16_t b) {  // ids ascend
        const float x = m_view.logits[a], y = m_view.logits[b];
        return x < y || (x == y && a > b);
    };
    std::make_heap(order, end, is_worse);
    while (end > order) {
        std::pop_heap(order, end--, is_worse);
        m_before += amount(*end);
        if (m_before >= m_wanted) return place(*end);
    }
    return end_of_limits();
}

TokenPlace CutoffSearch::find_among_equals() {
    go_on_with_kept(keep(m_limits), m_limits);
    for (size_t i = 0; i < m_view.size; ++i) {
        m_before += amount(i);
        if (m_before >= m_wanted) return place(i);
    }
    return end_of_limits();
}

}  // namespace pagewheel
