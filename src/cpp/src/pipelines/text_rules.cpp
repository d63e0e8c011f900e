#include "pipelines/text_rules.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "runtime/grammar_masks.hpp"
#include "text/tokenizer_impl.hpp"

namespace pagewheel {
namespace {

using Tokens = std::vector<int64_t>;

/// `both` without the `begin` that it has; nothing where it has not, or nothing else.
Tokens behind(const Tokens& begin, const Tokens& both) {
    const bool has_it = !begin.empty() && both.size() > begin.size() &&
                        std::equal(begin.begin(), begin.end(), both.begin());
    return has_it ? Tokens(both.begin() + std::ptrdiff_t(begin.size()), both.end()) : Tokens();
}

/// The tokens that the tokenizer writes each text with inside a longer one, as it stands. What a
/// tokenizer puts before a text is not among them.
std::vector<Tokens> encode_inside(const Encode& encode, const std::vector<std::string>& texts) {
    // Behind a line break nothing is put before a text.
    std::vector<std::string> lines{"\n"};
    for (const std::string& text : texts) lines.push_back("\n" + text);
    const std::vector<Tokens> encoded = encode(lines);
    std::vector<Tokens> found;
    std::vector<size_t> missing;
    std::vector<std::string> plain;
    for (size_t i = 0; i < texts.size(); ++i) {
        found.push_back(behind(encoded.front(), encoded[i + 1]));
        if (!found.back().empty()) continue;
        missing.push_back(i);
        plain.push_back(texts[i]);
    }
    if (plain.empty()) return found;
    std::vector<Tokens> others = encode(plain);
    for (size_t i = 0; i < missing.size(); ++i) found[missing[i]] = std::move(others[i]);
    return found;
}

}  // namespace

std::vector<Tokens> word_tokens(const Encode& encode, const std::vector<std::string>& words) {
    std::vector<std::string> texts = words;
    for (const std::string& word : words) texts.push_back(" " + word);
    std::vector<Tokens> found = encode_inside(encode, texts);
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    if (!found.empty() && found.front().empty()) found.erase(found.begin());
    return found;
}

namespace {

std::shared_ptr<const SequenceBreakers> find_breakers(const Tokenizer& tokenizer,
                                                      const std::set<std::string>& texts) {
    const auto& owner = Tokenizer::Impl::of(tokenizer);
    return std::make_shared<const SequenceBreakers>(SequenceBreakers{
        TextAutomaton(texts),
        std::shared_ptr<const std::vector<std::string>>(owner, &owner->decoder.vocabulary())});
}

}  // namespace

std::shared_ptr<const SequenceGrammar> TextRules::grammar_of(const GenerationConfig& config) const {
    std::vector<int64_t> stops(config.stop_token_ids.begin(), config.stop_token_ids.end());
    if (config.eos_token_id >= 0 && config.stop_token_ids.count(config.eos_token_id) == 0)
        stops.push_back(config.eos_token_id);
    const auto compiled = grammar_compiler(m_tokenizer)->compile(*config.structured_output_config);
    auto grammar = std::make_shared<SequenceGrammar>(compiled->start(stops), compiled.get());
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
    // The lock is not held here: others need not wait for the tokenizer.
    const auto encode = [this](const std::vector<std::string>& texts) {
        return Tokenizer::Impl::of(m_tokenizer)
            ->encoder.encode_all(texts, /*add_special_tokens=*/false);
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
