#include "sampling/candidate_filters.hpp"

namespace pagewheel {
namespace {

/// The fewest whose share of the total reaches p: nucleus sampling (Holtzman et al. 2020).
class TopP final : public CandidateFilter {
public:
    explicit TopP(float p) : m_p(p) {}
    size_t keep(const Candidates& candidates) const override {
        const double wanted = m_p * candidates.total;
        double sum = 0;
        size_t length = 0;
        while (length < candidates.size && sum < wanted) sum += candidates.weights[length++];
        return length;
    }
    bool needs_total() const override { return true; }

private:
    float m_p;
};

}  // namespace

std::unique_ptr<CandidateFilter> make_top_p(const GenerationConfig& config) {
    if (config.top_p >= 1.0f) return nullptr;
    return std::make_unique<TopP>(config.top_p);
}

}  // namespace pagewheel
