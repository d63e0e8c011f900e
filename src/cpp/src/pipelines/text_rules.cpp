#include "pipelines/text_rules.hpp"

#include <vector>

#include "runtime/grammar_masks.hpp"
#include "text/tokenizer_grammars.hpp"
#include "text/tokenizer_impl.hpp"
#include "text/word_tokens.hpp"

namespace pagewheel {
namespace {

std::shared_ptr<const SequenceBreakers> find_breakers(const Tokenizer& tokenizer,
                                                      const std::set<std::string>& texts) {
    const auto& owner = Tokenizer::Impl::of(tokenizer);
    return std::make_shared<const SequenceBreakers>(SequenceBreakers{
        TextAutomaton(texts),
        std::shared_ptr<const std::vector<std::string>>(owner, &owner->decoder.vocabulary())});
}

}  // namespace

std::shared_ptr<const GrammarRule> TextRules::grammar_of(const GenerationConfig& config) const {
    std::vector<int64_t> stops(config.stop_token_ids.begin(), config.stop_token_ids.end());
    if (config.eos_token_id >= 0 && config.stop_token_ids.count(config.eos_token_id) == 0)
        stops.push_back(config.eos_token_id);
    auto grammar = std::make_shared<SequenceGrammar>(
        grammar_compiler(m_tokenizer)->compile(*config.structured_output_config)->start(stops));
    try {
        const std::vector<int64_t> nothing;
        grammar->follow({nothing, 0});  // all sequences begin with this mask
    } catch (const GrammarEnd&) {       // which the first step finds out again
    }
    return grammar;
}

TokenSequences TextRules::find_bad_words(const std::set<std::string>& words) {
    {
        const std::lock_guard lock(m_mutex);
        if (m_words == words) return m_found;
    }
    // Without the lock: others need not wait for the tokenizer.
    const auto encode = [this](const std::vector<std::string>& texts) {
        return Tokenizer::Impl::of(m_tokenizer)->encoder.encode_plain(texts);
    };
    TokenSequences found = word_tokens(encode, {words.begin(), words.end()});
    const std::lock_guard lock(m_mutex);
    m_words = words;
    m_found = found;
    return found;
}

TokenRules TextRules::of(const GenerationConfig& config) {
    TokenRules rules;
    if (!config.bad_words.empty()) rules.bad_words = find_bad_words(config.bad_words);
    if (config.dry_multiplier > 0 && !config.dry_sequence_breakers.empty())
        rules.breakers = find_breakers(m_tokenizer, config.dry_sequence_breakers);
    return rules;
}

}  // namespace pagewheel
