// Where the best of many tokens reach an amount, found without sorting them.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

#include "kernels/logits.hpp"

namespace pagewheel {

/// A place in the order of tokens: by logits, the largest first, of equals the lower id first.
struct TokenPlace {
    float logit;
    uint32_t id;
};

struct LogitLimits {
    float low, high;  ///< both belong to it

    bool has(float logit) const { return logit >= low && logit <= high; }
};

/// Memory that grows and is not initialised.
template <class T>
class Scratch {
public:
    T* at_least(size_t size) {
        if (size > m_size) {
            m_data.reset(new T[size]);
            m_size = size;
        }
        return m_data.get();
    }

private:
    std::unique_ptr<T[]> m_data;
    size_t m_size = 0;
};

inline float next_above(float x) {
    return std::nextafter(x, std::numeric_limits<float>::infinity());
}
inline float next_below(float x) {
    return std::nextafter(x, -std::numeric_limits<float>::infinity());
}

/// Room for a list of tokens.
class TokenList {
public:
    /// Room for `size` tokens.
    kernels::TokenColumns columns(size_t size) {
        size += kernels::TokenColumns::slack;
        return {m_logits.at_least(size), m_weights.at_least(size), m_ids.at_least(size)};
    }

private:
    Scratch<float> m_logits, m_weights;
    Scratch<uint32_t> m_ids;
};

/// Does what the kernel does to tokens [begin, end), but looks only at groups that have such
/// tokens.
kernels::Kept keep_between(const kernels::LogitsKernels& kernels, const kernels::TokenView& tokens,
                           size_t begin, size_t end, const LogitLimits& limits,
                           const kernels::TokenColumns& out);

/// A quickselect by amount (Floyd and Rivest 1975): two pivots from a sample enclose the cutoff
/// narrowly, one pass takes down what is between them and adds up what is better.
class CutoffSearch {
public:
    /// The first place, among tokens within the limits, up to which the amounts of all that are as
    /// good or better reach `wanted`. Without one, the place after the last one within the limits.
    /// Amounts are weights, which sum up to `total`; without weights each token's is 1.
    /// `few_within`: the limits are known to leave tokens of few groups.
    TokenPlace find(const kernels::LogitsKernels& kernels, const kernels::TokenView& tokens,
                    const LogitLimits& limits, double wanted, double total,
                    bool few_within = false);

private:
    static constexpr size_t sample_size = 256;
    static constexpr size_t few = 512;       // tokens that are ordered
    static constexpr size_t halved = 16384;  // tokens of which sums are cheaper than a sample
    struct Sample {
        float logit, amount;
    };

    /// Goes on with what is between the pivots, or where they missed the cutoff, on its side.
    void narrow(const LogitLimits& pivots);
    LogitLimits choose_pivots() const;
    /// Limits around the cutoff that are some 100 times as narrow, by sums of weights.
    LogitLimits halve() const;
    /// A sample of m_view, the best first, and its size.
    size_t take_sample(Sample* sample) const;
    /// The limits within m_limits that enclose `share` of the amounts of the whole sample.
    static LogitLimits enclose(const Sample* sample, size_t size, double share,
                               const LogitLimits& limits);
    /// What is within the limits, in the list that m_view is not in.
    kernels::Kept keep(const LogitLimits& limits);
    void go_on_with_kept(const kernels::Kept& kept, const LogitLimits& limits);
    TokenPlace find_among_few();
    TokenPlace find_among_equals();
    /// The place behind the last one that the cutoff may be.
    TokenPlace end_of_limits() const {
        return {m_limits.low, std::numeric_limits<uint32_t>::max()};
    }
    double amount(size_t i) const { return m_view.weights ? double(m_view.weights[i]) : 1.0; }
    TokenPlace place(size_t i) const { return {m_view.logits[i], m_view.ids[i]}; }

    const kernels::LogitsKernels* m_kernels = nullptr;
    kernels::TokenView m_view;          // tokens, among them all within the limits
    LogitLimits m_limits = {};          // the cutoff is within them
    bool m_is_tight = false;            // m_view has no others
    double m_wanted = 0, m_amount = 0;  // of m_view
    double m_before = 0;                // amount of those that are better than all of m_view
    TokenList m_lists[2];
    size_t m_next_list = 0;
};

}  // namespace pagewheel
