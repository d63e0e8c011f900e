// The grammars of one model: compiled within limits, and kept.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "grammar/grammar.hpp"
#include "grammar/grammar_limits.hpp"
#include "pagewheel/structured_output.hpp"

namespace pagewheel {

/// Runs functions on threads of their own, with the stack that they need.
class LateThreads {
public:
    LateThreads(size_t stack_bytes, size_t most_late)
        : m_stack_bytes(stack_bytes), m_most_late(most_late) {}

    enum class Result { DONE, LATE, TOO_MANY_LATE };
    using Time = std::chrono::nanoseconds;
    /// Waits for `work`, until it has had a processor for `time`. Behind `quick_time` it gets one
    /// where nothing else wants it. If it is late it runs on, and what it holds must live as long:
    /// `work` may refer to nothing of the caller's. No work begins where too much is late. An
    /// exception of `work` is thrown here.
    Result run(std::function<void()> work, Time time, Time quick_time);

private:
    const size_t m_stack_bytes, m_most_late;
    std::mutex m_mutex;
    std::vector<std::future<void>> m_late;  // ends of works that their callers left
};

/// Any thread may call it.
class GrammarCompiler {
public:
    /// Nothing is loaded before the first grammar.
    explicit GrammarCompiler(GrammarVocabulary vocabulary, GrammarLimits limits = {});

    /// The one kept of the same text, or a new one. Throws GrammarError for a grammar that is
    /// refused, Error where llguidance is missing.
    std::shared_ptr<CompiledGrammar> compile(const StructuredOutputConfig& config);

    /// What it took to prepare the vocabulary; 0 before the first grammar.
    std::chrono::duration<float, std::milli> preparation_time() const;

private:
    using Entry = std::pair<std::string, std::shared_ptr<CompiledGrammar>>;
    using Clock = std::chrono::steady_clock;

    std::shared_ptr<CompiledGrammar> compile(const GrammarSource& source);
    GrammarSource translate(const StructuredOutputConfig& config);
    /// Runs `work` on a thread, up to the compile time. Throws GrammarError.
    void run(LateThreads& threads, std::function<void()> work);
    std::shared_ptr<CompiledGrammar> find(const std::string& key);
    void keep(const std::string& key, const std::shared_ptr<CompiledGrammar>& grammar);
    std::shared_ptr<const llguidance::SharedTokenizer> tokenizer();

    const GrammarLimits m_limits;
    mutable std::mutex m_tokenizer_mutex;  // held while the tokenizer is made, which all wait for
    GrammarVocabulary m_vocabulary;
    // By text. Threads that are late outlive the compiler.
    std::shared_ptr<const std::vector<std::pair<std::string, int64_t>>> m_special_tokens;
    std::shared_ptr<const llguidance::SharedTokenizer> m_tokenizer;
    std::chrono::duration<float, std::milli> m_preparation_time{0};
    LateThreads m_threads;
    LateThreads m_translations;  // not counted with these: grammars that are kept need one too
    std::mutex m_cache_mutex;
    std::list<Entry> m_entries;  // last used first
};

}  // namespace pagewheel
