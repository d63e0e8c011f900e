// The filters of sampling: top_k, top_p, min_p.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pagewheel/generation_config.hpp"
#include "sampling/candidate_filter.hpp"

namespace pagewheel {

/// The k best.
class TopK final : public CandidateFilter {
public:
    explicit TopK(size_t k) : m_k(k) {}
    size_t keep(const Candidates& candidates) const override;
    CandidateBound bound() const override { return {m_k, 0.0f}; }
    bool keeps_all(size_t n) const override { return m_k >= n; }

private:
    size_t m_k;
};

/// The fewest whose share of the total reaches p: nucleus sampling (Holtzman et al. 2020).
class TopP final : public CandidateFilter {
public:
    explicit TopP(float p) : m_p(p) {}
    size_t keep(const Candidates& candidates) const override;
    bool needs_total() const override { return true; }

private:
    float m_p;
};

/// Those that are at least p times as probable as the best (Nguyen et al. 2024).
class MinP final : public CandidateFilter {
public:
    explicit MinP(float p) : m_p(p) {}
    size_t keep(const Candidates& candidates) const override;
    CandidateBound bound() const override { return {CandidateBound().count, m_p}; }

private:
    float m_p;
};

struct FilterKind {
    std::string parameter;  ///< of GenerationConfig that asks for it
    bool (*is_wanted)(const GenerationConfig&);
    std::unique_ptr<CandidateFilter> (*make)(const GenerationConfig&);
};

/// All there are, in the order in which they are applied: transformers'. Those that bound the count
/// come first and those that bound the weight last, for no total may count what a bound left out
/// before, nor miss what is left out after it.
const std::vector<FilterKind>& candidate_filters();

}  // namespace pagewheel
