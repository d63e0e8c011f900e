// Drafts by a head that reads the model's hidden states: multi-token prediction, EAGLE-3.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/block_pool.hpp"
#include "runner/model.hpp"
#include "runtime/drafting.hpp"
#include "runtime/step_times.hpp"
#include "runtime/suffix_drafter.hpp"

namespace pagewheel {

/// The head reads each token together with the model's hidden state of the token before (of its
/// last layer, or for EAGLE-3 what was made of three layers: CompileOptions::partner), and gives
/// what comes next. For further drafts it goes on from its own guess and its own hidden state. It
/// attends to what it has read of the sequence, in a cache of its own. What was read for a draft is
/// read again once the model has confirmed it, with the model's hidden states.
///
/// The head begins where a sequence's hidden states are known from: behind a cached prefix, or
/// where its cache had no more blocks. It guesses worse then, and no answer changes. What is
/// repeated costs nothing, so it is proposed, too.
class HeadDrafter final : public Drafter {
public:
    /// `now`: the clock that the head's time goes by. Throws InvalidArgument for a head that is not
    /// the model's.
    HeadDrafter(std::unique_ptr<Model> head, const Model& model, size_t num_blocks,
                std::function<Clock::time_point()> now);

    void propose(SequenceState& sequence, size_t most, std::vector<Draft>& drafts) override {
        m_repeats.propose(sequence, most, drafts);
    }
    void observe(const Batch& batch, const float* states) override;
    bool computes() const override { return true; }
    void extend(const std::vector<SequenceState*>& sequences) override;
    double time_to_extend(const std::vector<SequenceState*>& sequences) const override;
    void finish(const SequenceState& sequence) override;
    void forget(const std::optional<std::set<std::string>>& salts) override {
        m_repeats.forget(salts);
    }

private:
    /// The head's sequence of another one: its token i is that one's token `first` + 1 + i, and it
    /// is read with the hidden state of token `first` + i. Its last tokens may be drafts.
    struct Context : Sequence {
        SequenceState* original = nullptr;
        size_t first = 0;
        size_t num_known = 0;       ///< tokens that the original has, too
        size_t num_read = 0;        ///< of num_cached, those read with hidden states of the model's
        std::vector<float> states;  ///< the model's, of tokens from num_read on
        std::vector<float> guess;   ///< the head's, after what it has read
    };
    /// Tokens that the head is to read: with the model's hidden states, or one with its own.
    struct Reading {
        Context* context;
        size_t num_tokens;
        bool is_guess;
    };

    /// Tokens whose hidden states are known.
    size_t num_stated(const Context& context) const {
        return context.num_read + context.states.size() / m_size;
    }
    /// Keeps the hidden states of the tokens that a step computed.
    Context& keep(SequenceState& sequence, const float* states, size_t num_tokens);
    /// Forgets drafts, and hidden states after tokens that were not confirmed.
    void confirm(Context& context);
    /// How many tokens can be read with the model's hidden states.
    size_t num_due(const Context& context) const;
    /// Has the head read m_readings, and guess on if it is asked to.
    void run(bool asked);
    void compute(const Batch& batch, bool asked);
    bool take_blocks(Context& context, size_t num_tokens);
    void release_blocks(Context& context, size_t num_tokens);
    void drop(const SequenceState& sequence);

    const std::unique_ptr<Model> m_head;
    const size_t m_size;        // of a hidden state
    const size_t m_vocabulary;  // the model's
    const std::function<Clock::time_point()> m_now;
    BlockPool m_pool;
    SuffixDrafter m_repeats{/*learns=*/true};
    StepTimes m_times;
    std::unordered_map<const SequenceState*, Context> m_contexts;
    std::vector<Reading> m_readings;  // of one run; kept for its memory
};

}  // namespace pagewheel
