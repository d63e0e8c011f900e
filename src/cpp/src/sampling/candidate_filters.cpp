#include "sampling/candidate_filters.hpp"

#include <algorithm>

namespace pagewheel {

using Config = GenerationConfig;
using Filter = std::unique_ptr<CandidateFilter>;

size_t TopK::keep(const Candidates& candidates) const {
    return std::min(m_k, candidates.size);
}

size_t TopP::keep(const Candidates& candidates) const {
    const double wanted = m_p * candidates.total;
    double sum = 0;
    size_t length = 0;
    while (length < candidates.size && sum < wanted) sum += candidates.weights[length++];
    return length;
}

size_t MinP::keep(const Candidates& candidates) const {
    size_t length = candidates.size;
    while (length > 1 && candidates.weights[length - 1] < m_p) --length;
    return length;
}

const std::vector<FilterKind>& candidate_filters() {
    static const std::vector<FilterKind> table{
        {"top_k", [](const Config& c) { return c.top_k != 0 && c.top_k != Config::unlimited; },
         [](const Config& c) -> Filter { return std::make_unique<TopK>(c.top_k); }},
        {"top_p", [](const Config& c) { return c.top_p < 1.0f; },
         [](const Config& c) -> Filter { return std::make_unique<TopP>(c.top_p); }},
        {"min_p", [](const Config& c) { return c.min_p > 0.0f; },
         [](const Config& c) -> Filter { return std::make_unique<MinP>(c.min_p); }},
    };
    return table;
}

}  // namespace pagewheel
