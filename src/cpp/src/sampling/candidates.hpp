// The tokens to draw from.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/isa.hpp"
#include "kernels/logits.hpp"
#include "sampling/cutoff.hpp"
#include "sampling/log_probs.hpp"

namespace pagewheel {

/// A row of logits [size] with the best of each group of them. Memory of the thread's, too: a
/// thread has one of them at a time.
class LogitsMaxima {
public:
    /// Throws LogitsError as find_best_token() does.
    LogitsMaxima(const float* logits, size_t n, Isa isa);

    const float* logits() const { return m_logits; }
    size_t size() const { return m_size; }
    float best() const { return m_best; }
    const float* groups() const { return m_groups; }

private:
    const float* m_logits;
    size_t m_size;
    const float* m_groups;
    float m_best;
};

/// Tokens that filters leave of a row of logits. They stand in an order: by logits, the largest
/// first, of equals the lower id first. What stays is always neighbours in it, from a first place
/// to a last one: so nothing need be listed for it, let alone sorted.
///
/// A token's weight is exp((logit - the row's best) * scale), in float with a relative error below
/// 1e-5; its probability is the weight's share of all candidates'. Tokens whose logit is minus
/// infinity are none.
///
/// Their memory is the thread's, and allocated once: a thread has one of them at a time.
class Candidates {
public:
    /// The tokens of the row, which must live as long. `scale` is 1 / temperature, at most what a
    /// float holds.
    Candidates(const LogitsMaxima& row, double scale, Isa isa);

    // ---- What they are.
    const TokenPlace& first() const { return m_first; }  ///< Or a place before it, after no other.
    const TokenPlace& last() const { return m_last; }    ///< Or one after it, before no other.
    double best();                                       ///< The largest logit.
    double mean_logit();                                 ///< By probability.
    double entropy();                                    ///< In nats.
    double deviation();                                  ///< Of logits, each counting the same.
    /// That of a token with the probability, or with `ratio` times the best one's.
    double logit_of(double probability);
    double logit_below_best(double ratio);

    // ---- What stays of them: at least one.
    void keep_from(double logit);           ///< The best one does.
    void keep_best(size_t count);           ///< `count` is 1 or more.
    void keep_nucleus(double probability);  ///< The fewest, best first, that reach it.
    void keep_nearest(double logit, double probability);  ///< The same, nearest first; and equals.
    /// All of those from this logit on go, but for the last.
    void leave_out_best_down_to(double logit);

    struct Drawn {
        uint32_t id;
        double log_prob;  ///< among what stayed
    };
    /// The first, by ids, up to which the probabilities exceed `point`, which is in [0, 1).
    Drawn draw(double point);

private:
    /// Parts of m_view with one pair of limits: which of those equal to the first and last places
    /// stay depends on their ids.
    template <class Body>
    void for_parts(const Body& body) const;
    size_t index_of(uint32_t id) const;
    /// A logit that the cutoff is not below, whose amount is `wanted`: there the best of groups
    /// alone reach it. The least if they do not, or not soon.
    float least_by_maxima(double wanted, bool by_weight) const;
    /// Leaves only the tokens of a whole row from this logit on in m_view, and has their weights.
    void list_from(float low);
    /// A logit that the nucleus of weights with this sum does not go below.
    float least_of_nucleus(double probability, double sum) const;
    /// Whether most tokens of a whole row are above that, by a sample.
    bool is_flat(double probability) const;
    /// Leaves only candidates in m_view.
    void compact();
    /// Has their weights, and gives the sum.
    double total();
    LogitLimits limits() const { return {m_last.logit, m_first.logit}; }
    void set_last(const TokenPlace& place);
    double weight(size_t i) const;
    /// The only token that is likely, where all that is left weighs too little for a float.
    Drawn best_left() const;
    uint32_t id(size_t i) const { return m_view.ids ? m_view.ids[i] : uint32_t(i); }

    const kernels::LogitsKernels* m_kernels;
    const float m_reference;  // the row's best
    const double m_scale;
    kernels::TokenView m_view;
    TokenPlace m_first, m_last;
    bool m_is_compact = true;        // m_view has no others, but for those of minus infinity
    bool m_first_is_a_token = true;  // else its logit is only a limit
    double m_total = 0;              // of m_view's weights
};

}  // namespace pagewheel
