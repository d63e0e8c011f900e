#include "pagewheel/grammar.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "grammar/llguidance_api.hpp"
#include "text/tokenizer_impl.hpp"

namespace pagewheel {
namespace {

// Tokenizers of SentencePiece may put a space before a text. Behind this character they do not, and
// no token has it together with others.
constexpr const char* mark = "\x02";

/// `before` are the mark's tokens.
std::vector<int64_t> tokenize_behind_mark(Tokenizer::Impl& tokenizer,
                                          const std::vector<int64_t>& before,
                                          const std::string& text) {
    std::vector<int64_t> tokens = tokenizer.encoder.encode({mark + text}, false);
    const bool begins_with_mark =
        tokens.size() >= before.size() && std::equal(before.begin(), before.end(), tokens.begin());
    if (!begins_with_mark) return tokenizer.encoder.encode({text}, false);
    tokens.erase(tokens.begin(), tokens.begin() + std::ptrdiff_t(before.size()));
    return tokens;
}

GrammarVocabulary to_vocabulary(const std::shared_ptr<Tokenizer::Impl>& tokenizer) {
    GrammarVocabulary result;
    result.tokens = tokenizer->decoder.vocabulary();
    check_argument(!result.tokens.empty(),
                   "the tokenizer does not tell the bytes of its tokens, which grammars need");
    for (const int32_t token : tokenizer->decoder.special_tokens())
        if (token >= 0 && size_t(token) < result.tokens.size())
            result.special_tokens.push_back(token);
    const int64_t eos = tokenizer->files.eos.id;
    if (eos < int64_t(result.tokens.size())) result.end_token = eos;
    // This also compiles the graph, which takes longer than any mask.
    const std::vector<int64_t> before = tokenizer->encoder.encode({mark}, false);
    result.tokenize = [before,
                       weak = std::weak_ptr<Tokenizer::Impl>(tokenizer)](const std::string& text) {
        const auto alive = weak.lock();
        return alive ? tokenize_behind_mark(*alive, before, text) : std::vector<int64_t>();
    };
    return result;
}

}  // namespace

std::shared_ptr<GrammarCompiler> grammar_compiler(const Tokenizer& tokenizer) {
    const auto impl = Tokenizer::Impl::of(tokenizer);
    const std::lock_guard<std::mutex> lock(impl->grammars_mutex);
    if (!impl->grammars) impl->grammars = std::make_shared<GrammarCompiler>(to_vocabulary(impl));
    return impl->grammars;
}

void set_grammar_library(const std::string& path) {
    llguidance::set_library(path);
}

const char* grammar_library_version() {
    return llguidance::versions;
}

struct Grammar::Impl {
    std::shared_ptr<Tokenizer::Impl> tokenizer;
    std::shared_ptr<CompiledGrammar> grammar;

    /// The state behind the text, if the grammar allows it.
    std::unique_ptr<GrammarMatcher> after(const std::string& text) const {
        auto state = grammar->start({});
        for (const int64_t token : tokenizer->encoder.encode({text}, false))
            if (!state->accept(token)) return nullptr;
        return state;
    }
};

Grammar::Grammar(const StructuredOutputConfig& config, const Tokenizer& tokenizer)
    : m_impl(std::make_shared<const Impl>(
          Impl{Tokenizer::Impl::of(tokenizer), grammar_compiler(tokenizer)->compile(config)})) {}

bool Grammar::accepts(const std::string& text) const {
    const auto state = m_impl->after(text);
    return state && state->is_accepting();
}

bool Grammar::accepts_prefix(const std::string& text) const {
    return m_impl->after(text) != nullptr;
}

std::unique_ptr<GrammarMatcher> Grammar::matcher(const std::vector<int64_t>& stop_tokens) const {
    return m_impl->grammar->start(stop_tokens);
}

}  // namespace pagewheel
