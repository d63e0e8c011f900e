// What may enter the engine, and how a request is made of it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "pagewheel/generation_config.hpp"
#include "runtime/eviction_manager.hpp"
#include "runtime/request.hpp"
#include "sampling/logits_chain.hpp"

namespace pagewheel {

/// What requests are checked against.
struct AdmissionLimits {
    size_t vocabulary;
    size_t block_size;
    size_t context_length;  ///< positions the model was made for; 0: not known
    size_t max_num_seqs;
};

/// Any thread may ask; set_room() is the step loop's.
class Admission {
public:
    /// What a config's texts are in tokens; asked where it has such.
    using FindRules = std::function<TokenRules(const GenerationConfig&)>;
    /// The grammar of a config's structured_output_config. Throws GrammarError.
    using CompileGrammar =
        std::function<std::shared_ptr<const SequenceGrammar>(const GenerationConfig&)>;

    /// The tokens of a text, without special ones.
    using Encode = std::function<std::vector<int64_t>(const std::string&)>;

    /// `eviction` null: nothing is evicted. `decoders` turn tokens into text.
    Admission(const AdmissionLimits& limits, const EvictionManager* eviction,
              GeneratedText::Decoders decoders, FindRules find_rules,
              CompileGrammar compile_grammar, Encode encode)
        : m_limits(limits),
          m_eviction(eviction),
          m_decoders(std::move(decoders)),
          m_find_rules(std::move(find_rules)),
          m_compile_grammar(std::move(compile_grammar)),
          m_encode(std::move(encode)) {}

    /// Throws InvalidArgument as ContinuousBatchingPipeline::add_request does. The request
    /// has its first sequence.
    std::unique_ptr<Request> make_request(std::optional<uint64_t> id,
                                          const std::vector<int64_t>& prompt,
                                          const GenerationConfig& config,
                                          std::shared_ptr<RequestQueue> queue,
                                          Clock::time_point arrival);
    std::unique_ptr<SequenceState> make_sequence(Request& request, size_t index,
                                                 const std::vector<int64_t>& prompt) const;
    /// Texts of a request's `count` sequences, of which nothing is decoded.
    std::vector<SequenceText> make_texts(const Request& request, size_t count) const;

    /// The tokens that a sequence may have beside pinned blocks.
    void set_room(size_t max_tokens) { m_room = max_tokens; }
    /// Says why the request cannot be served any more, if the room became too small since it was
    /// made.
    std::optional<Error> limit_again(Request& request) const;

private:
    /// Gives the one of an earlier request that still lives, or a new one. Throws InvalidArgument.
    std::shared_ptr<const PreparedConfig> prepare(const GenerationConfig& config);
    /// Compiles on the caller's thread, so that no step waits for it.
    void compile_grammar(Request& request, const GenerationConfig& config) const;
    /// Checks the ids that a config names.
    void check_token_ids(const GenerationConfig& config) const;
    void check_prompt(const std::vector<int64_t>& prompt, const GenerationConfig& config) const;
    size_t max_tokens(size_t prompt_length, const GenerationConfig& config) const;
    GeneratedText::Decoders decoders(const GenerationConfig& config) const;
    /// Null where nothing of such a request is evicted.
    const EvictionManager* eviction_of(const GenerationConfig& config) const {
        return config.cache_eviction ? m_eviction : nullptr;
    }
    bool evicts_prompt(const GenerationConfig& config) const {
        return eviction_of(config) && m_eviction->config().evict_during_prefill;
    }

    const AdmissionLimits m_limits;
    const EvictionManager* const m_eviction;
    const GeneratedText::Decoders m_decoders;
    const FindRules m_find_rules;
    const CompileGrammar m_compile_grammar;
    const Encode m_encode;
    std::atomic<size_t> m_room{0};

    std::mutex m_mutex;  // guards what follows
    std::array<std::weak_ptr<const PreparedConfig>, 8> m_latest;
    size_t m_next = 0;  // of m_latest, the one to be replaced
};

}  // namespace pagewheel
