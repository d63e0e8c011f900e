// Drafts by a smaller model.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "pagewheel/scheduler_config.hpp"
#include "runner/model.hpp"
#include "runtime/drafting.hpp"
#include "runtime/step_times.hpp"
#include "runtime/suffix_drafter.hpp"
#include "runtime/token_map.hpp"
#include "scheduling/scheduler.hpp"

namespace pagewheel {

/// The likeliest token, and as its kind how likely it is. Of logits that are no finite numbers it
/// is token 0, of the kind that is hardly ever right: no request ends because of a draft.
Draft likeliest_draft(const float* logits, size_t vocabulary);

/// Takes the likeliest token of the draft model after each sequence, of all sequences in one step
/// of that model. Each sequence has another one in a scheduler of the draft model's own, which
/// reads what the first has and has no token of its own but drafts. So the draft model's cache
/// shares prefixes, preempts where blocks are short, and reads prompts in chunks: of each prompt
/// one in a step, and its sequence has no drafts before it is read. What is repeated costs nothing,
/// so it is proposed, too.
///
/// A draft model with another vocabulary reads each of the sequence's tokens as its own tokens with
/// the same bytes. Of the bytes of its likeliest token the model's first token is the draft.
class ModelDrafter final : public Drafter {
public:
    struct Limits {
        size_t num_blocks;      ///< of the draft model's cache
        size_t context_length;  ///< positions the draft model was made for; 0: not known
        size_t vocabulary;      ///< of the model that is drafted for
        std::shared_ptr<const VocabularyMaps> maps = nullptr;  ///< null: both have the same
    };

    /// The config is the pipeline's. `now`: the clock that the draft model's time goes by. Throws
    /// InvalidArgument for a model that cannot draft.
    ModelDrafter(std::unique_ptr<Model> model, const SchedulerConfig& config, const Limits& limits,
                 std::function<Clock::time_point()> now);

    void propose(SequenceState& sequence, size_t most, std::vector<Draft>& drafts) override {
        m_repeats.propose(sequence, most, drafts);
    }
    bool computes() const override { return true; }
    void extend(const std::vector<SequenceState*>& sequences) override;
    double time_to_extend(const std::vector<SequenceState*>& sequences) const override {
        return m_times.level() * m_times.of(double(sequences.size()));
    }
    void finish(const SequenceState& sequence) override;
    void forget(const std::optional<std::set<std::string>>& salts) override;

private:
    /// The draft model's sequence of another one.
    struct Shadow : Sequence {
        SequenceState* original = nullptr;
        std::vector<int64_t> read;  ///< the original's tokens that `tokens` have the bytes of
        std::vector<size_t> ends;   ///< of `tokens`, behind each of them
        size_t num_known = 0;       ///< of `read`, from the first on, the original has
    };

    bool can_read(size_t num_tokens) const;
    void append(Shadow& shadow, int64_t token) const;
    /// Makes its shadow have the sequence's tokens and its drafts, the last of them to be computed.
    void follow(SequenceState& sequence);
    void run();
    void take_drafts(const Batch& batch, const Logits& logits);

    const std::unique_ptr<Model> m_model;
    const Limits m_limits;
    const std::function<Clock::time_point()> m_now;
    Scheduler m_scheduler;
    SuffixDrafter m_repeats{/*learns=*/true};
    StepTimes m_times;
    std::unordered_map<const SequenceState*, std::unique_ptr<Shadow>> m_shadows;
    std::set<const Sequence*> m_wanted;  // shadows whose next token is asked for
};

}  // namespace pagewheel
