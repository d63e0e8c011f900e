#include "pagewheel/grammar.hpp"

#include "grammar/llguidance_api.hpp"
#include "text/tokenizer_grammars.hpp"
#include "text/tokenizer_impl.hpp"

namespace pagewheel {

void set_grammar_library(const std::string& path) {
    llguidance::set_library(path);
}

const char* grammar_library_version() {
    return llguidance::versions;
}

class Grammar::Impl {
public:
    Impl(const StructuredOutputConfig& config, const Tokenizer& tokenizer)
        : m_tokenizer(Tokenizer::Impl::of(tokenizer)),
          m_grammar(grammar_compiler(tokenizer)->compile(config)) {}

    std::unique_ptr<GrammarMatcher> matcher(const std::vector<int64_t>& stop_tokens) const {
        return m_grammar->start(stop_tokens);
    }

    /// The state behind the text, if the grammar allows it.
    std::unique_ptr<GrammarMatcher> after(const std::string& text) const {
        auto state = m_grammar->start({});
        for (const int64_t token : m_tokenizer->encoder.encode({text}, false))
            if (!state->accept(token)) return nullptr;
        return state;
    }

private:
    std::shared_ptr<Tokenizer::Impl> m_tokenizer;
    std::shared_ptr<CompiledGrammar> m_grammar;
};

Grammar::Grammar(const StructuredOutputConfig& config, const Tokenizer& tokenizer)
    : m_impl(std::make_shared<const Impl>(config, tokenizer)) {}

bool Grammar::accepts(const std::string& text) const {
    const auto state = m_impl->after(text);
    return state && state->is_accepting();
}

bool Grammar::accepts_prefix(const std::string& text) const {
    return m_impl->after(text) != nullptr;
}

std::unique_ptr<GrammarMatcher> Grammar::matcher(const std::vector<int64_t>& stop_tokens) const {
    return m_impl->matcher(stop_tokens);
}

}  // namespace pagewheel
