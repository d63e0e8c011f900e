// What is known of a sequence's drafts.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace pagewheel {

/// A guessed token.
struct Draft {
    /// Kinds of repeated texts, then of a draft model, and one of all of a draft model together.
    static constexpr size_t num_kinds = 16, first_computed = num_kinds, computed = 2 * num_kinds;

    int64_t token;
    uint8_t kind = 0;  ///< drafts of one kind are right about equally often
};

/// How often drafts of each kind were right. The latest ones count most.
class AcceptanceRates {
public:
    void record(size_t kind, bool is_right, float decay) {
        Count& count = m_counts[kind];
        count.right = count.right * decay + float(is_right);
        count.all = count.all * decay + 1;
    }
    /// The rate, where `prior` counts as `weight` drafts.
    float rate(size_t kind, float prior, float weight) const {
        const Count& count = m_counts[kind];
        return (count.right + prior * weight) / (count.all + weight);
    }

private:
    struct Count {
        float right = 0, all = 0;
    };
    std::array<Count, Draft::computed + 1> m_counts{};
};

/// The drafter's own memory of a sequence.
struct DrafterState {
    virtual ~DrafterState() = default;
};

struct DraftState {
    std::vector<Draft> passed_over;  ///< repeated texts that a draft model is to do better than,
    std::vector<Draft> proposed;     ///< and what is to be tried, behind so many tokens:
    size_t proposed_at = 0;
    AcceptanceRates rates;
    std::unique_ptr<DrafterState> drafter;
    bool is_finished = false;  ///< Drafter::finish() was called
};

}  // namespace pagewheel
