// Beam search over the continuations of one prompt.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/isa.hpp"
#include "pagewheel/generation_config.hpp"
#include "pagewheel/generation_handle.hpp"
#include "sampling/log_probs.hpp"
#include "sampling/logits_chain.hpp"

namespace pagewheel {

/// A generated sequence, complete or cut short.
struct Hypothesis {
    std::vector<int64_t> tokens;
    std::vector<float> log_probs;  ///< of the tokens, with all penalties
    float score = 0;               ///< sum of log_probs / length ^ length_penalty
    GenerationFinishReason finish_reason = GenerationFinishReason::NONE;
    /// The likeliest tokens in each token's place, where logprobs asks for them: after all
    /// penalties but diversity_penalty.
    std::vector<std::vector<TokenLogProb>> top_log_probs = {};
};

/// How the sequences that hold the beams go on, each named by its slot, which is below num_beams.
/// A beam with one continuation stays in its slot; no cache is copied for it.
struct BeamMoves {
    struct Fork {
        size_t from, to;
    };
    struct Append {
        size_t slot;
        int64_t token;
    };
    /// First. `to` is the next new slot, or one that holds no beam or a lost one; nothing is forked
    /// from it.
    std::vector<Fork> forks;
    std::vector<size_t> dropped;   ///< slots that hold no beam any more
    std::vector<Append> appended;  ///< last: one for every beam
    size_t num_tokens = 0;         ///< appended, and those that completed a hypothesis
};

/// Beam search as transformers has it, and in several groups diverse beam search (Vijayakumar et
/// al. 2016): a group's scores are lowered where groups before it chose the same token in the step.
///
/// A beam's score is the sum of its tokens' log-probabilities (log-softmax of the logits) after the
/// chain of logits processors and diversity_penalty (subtracted). Of the best continuations of a
/// group's beams, at least twice as many as it has beams, those among the first group-size that end
/// are hypotheses, if they are among the best group-size ones so far; the first group-size that do
/// not end are the next beams.
class BeamSearch {
public:
    /// Whether the beam in the slot, continued by the token, has a stop string in its text.
    using StopsText = std::function<bool(size_t slot, int64_t token)>;

    /// `config` must outlive it. The first beam has a fork of the chain.
    BeamSearch(const GenerationConfig& config, size_t prompt_length, size_t max_new_tokens, Isa isa,
               const LogitsChain& chain);

    /// Takes down how the beam in the slot may go on. `tokens` are its tokens with the prompt;
    /// `logits` [n], which follow them, are changed. In the beginning there is one beam, the
    /// prompt, in slot 0. Throws LogitsError.
    void score(size_t slot, const std::vector<int64_t>& tokens, float* logits, size_t n);
    /// The grammar of the beam in the slot; null: it has none.
    const std::shared_ptr<SequenceGrammar>& grammar(size_t slot) const {
        return m_slots.at(slot).chain.grammar();
    }
    /// Every beam was scored since the last advance().
    bool is_ready() const;
    /// The next beams. Valid until the next call.
    const BeamMoves& advance(const StopsText& stops_text);
    /// No better hypothesis is to come, by the stop criterion.
    bool is_done() const;
    /// The best num_return_sequences hypotheses, beams that were not completed among them; fewer if
    /// there are not so many.
    std::vector<Hypothesis> best() const;

private:
    /// Its score and finish_reason are not known yet.
    struct Beam : Hypothesis {
        size_t slot = 0;
        double sum = 0;
    };
    struct Group {
        std::vector<Beam> beams;           // best first
        std::vector<Hypothesis> complete;  // best first
        bool done = false;
    };
    struct Slot {
        bool in_use = false, scored = false;
        bool is_whole = false;                  // its grammar has ended with it
        LogitsChain chain;                      // of the sequence in it
        std::vector<TokenLogit> continuations;  // log-probabilities, best first
    };
    /// A continuation that a group may choose in a step.
    struct Candidate {
        double sum;
        size_t beam;
        int64_t token;
        float log_prob;
    };

    void find_candidates(const Group& group);
    GenerationFinishReason ends(const Beam& beam, const Candidate& candidate,
                                const StopsText& stops_text) const;
    void advance_group(Group& group, const StopsText& stops_text);
    /// The beam, continued by the candidate.
    Beam continued(const Beam& beam, const Candidate& candidate) const;
    void complete(Group& group, const Beam& beam, GenerationFinishReason reason) const;
    bool cannot_improve(const Group& group) const;
    /// Gives each next beam a slot.
    void place_beams();
    double final_score(double sum, size_t length) const;
    Hypothesis hypothesis(const Beam& beam, GenerationFinishReason reason) const;

    const GenerationConfig& m_config;
    bool m_has_grammar;
    size_t m_prompt_length, m_max_new_tokens, m_group_size;
    size_t m_num_candidates;  // of a group in a step
    Isa m_isa;
    std::vector<Group> m_groups;
    std::vector<Slot> m_slots;
    BeamMoves m_moves;
    std::vector<int64_t> m_chosen;        // in this step, by the groups before
    std::vector<Candidate> m_candidates;  // kept for its memory, as the next
};

}  // namespace pagewheel
