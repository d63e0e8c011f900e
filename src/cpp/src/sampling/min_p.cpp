#include "sampling/candidate_filters.hpp"

namespace pagewheel {
namespace {

/// Those that are at least p times as probable as the best (Nguyen et al. 2024).
class MinP final : public CandidateFilter {
public:
    explicit MinP(float p) : m_p(p) {}
    size_t keep(const Candidates& candidates) const override {
        size_t length = candidates.size;
        while (length > 1 && candidates.weights[length - 1] < m_p) --length;
        return length;
    }
    CandidateBound bound() const override { return {CandidateBound().count, m_p}; }

private:
    float m_p;
};

}  // namespace

std::unique_ptr<CandidateFilter> make_min_p(const GenerationConfig& config) {
    if (!(config.min_p > 0.0f)) return nullptr;
    return std::make_unique<MinP>(config.min_p);
}

}  // namespace pagewheel
