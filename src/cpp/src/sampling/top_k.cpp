#include <algorithm>

#include "sampling/candidate_filters.hpp"

namespace pagewheel {
namespace {

/// The k best.
class TopK final : public CandidateFilter {
public:
    explicit TopK(size_t k) : m_k(k) {}
    size_t keep(const Candidates& candidates) const override {
        return std::min(m_k, candidates.size);
    }
    CandidateBound bound() const override { return {m_k, 0.0f}; }
    bool keeps_all(size_t n) const override { return m_k >= n; }

private:
    size_t m_k;
};

}  // namespace

std::unique_ptr<CandidateFilter> make_top_k(const GenerationConfig& config) {
    if (config.top_k == 0 || config.top_k == GenerationConfig::unlimited) return nullptr;
    return std::make_unique<TopK>(config.top_k);
}

}  // namespace pagewheel
