#include "pipelines/text_rules.hpp"

#include <algorithm>
#include <vector>

#include "runtime/sequence_grammar.hpp"
#include "text/tokenizer_grammars.hpp"
#include "text/word_tokens.hpp"

namespace pagewheel {
namespace {

/// The rows of a padded batch.
void append_rows(const TokenizedInputs& batch, TokenSequences& rows) {
    const size_t height = batch.input_ids.get_shape()[0], width = batch.input_ids.get_shape()[1];
    const int64_t* const ids = batch.input_ids.data<const int64_t>();
    const int64_t* const mask = batch.attention_mask.data<const int64_t>();
    for (size_t i = 0; i < height; ++i) {
        std::vector<int64_t>& row = rows.emplace_back();
        for (size_t k = i * width; k < (i + 1) * width; ++k)
            if (mask[k] != 0) row.push_back(ids[k]);
    }
}

Encode encode_of(const Tokenizer& tokenizer) {
    return [&](const std::vector<std::string>& texts) {
        constexpr ptrdiff_t at_once = 256;  // a batch is as wide as its longest text
        EncodeOptions options;
        options.add_special_tokens = false;
        TokenSequences rows;
        for (auto begin = texts.begin(); begin != texts.end();) {
            const auto end = begin + std::min(at_once, texts.end() - begin);
            append_rows(tokenizer.encode(std::vector<std::string>(begin, end), options), rows);
            begin = end;
        }
        return rows;
    };
}

TokenSequences find_words(const Tokenizer& tokenizer, const std::set<std::string>& words) {
    return word_tokens(encode_of(tokenizer), {words.begin(), words.end()});
}

std::shared_ptr<const SequenceBreakers> find_breakers(const Tokenizer& tokenizer,
                                                      const std::set<std::string>& texts) {
    auto breakers = std::make_shared<SequenceBreakers>();
    const std::vector<std::string> vocabulary = tokenizer.get_vocab_vector();
    for (const std::string& text : texts)
        for (const auto& sequence : tokens_with_text(encode_of(tokenizer), vocabulary, text))
            (*breakers)[sequence.front()].emplace_back(sequence.begin() + 1, sequence.end());
    return breakers;
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

TokenRules TextRules::of(const GenerationConfig& config) {
    TokenRules rules;
    if (!config.bad_words.empty())
        rules.bad_words = m_bad_words.of(config.bad_words, [&](const std::set<std::string>& words) {
            return find_words(m_tokenizer, words);
        });
    if (config.dry_multiplier > 0 && !config.dry_sequence_breakers.empty())
        rules.breakers = m_breakers.of(
            config.dry_sequence_breakers,
            [&](const std::set<std::string>& texts) { return find_breakers(m_tokenizer, texts); });
    return rules;
}

}  // namespace pagewheel
