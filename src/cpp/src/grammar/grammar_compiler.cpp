#include "grammar/grammar_compiler.hpp"

#include <pthread.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>

#include "base/check.hpp"
#include "base/process.hpp"
#include "grammar/structured_output.hpp"

namespace pagewheel {

namespace {

constexpr std::chrono::milliseconds look_interval{20};

/// One call of run(): of the caller and the thread.
struct Call {
    // What `work` holds goes before the caller knows of the end.
    explicit Call(std::function<void()> work)
        : task([work = std::move(work)]() mutable { std::exchange(work, nullptr)(); }) {}

    void set_thread(std::optional<RunningThread> running) {
        const std::lock_guard<std::mutex> lock(mutex);
        thread = running;
    }

    std::packaged_task<void()> task;
    std::mutex mutex;
    std::optional<RunningThread> thread;  // while it runs
};

void* run_call(void* argument) {
    const std::unique_ptr<std::shared_ptr<Call>> given(
        static_cast<std::shared_ptr<Call>*>(argument));
    Call& call = **given;
    call.set_thread(RunningThread());
    call.task();
    call.set_thread(std::nullopt);
    return nullptr;
}

void start_detached(const std::shared_ptr<Call>& call, size_t stack_bytes) {
    auto argument = std::make_unique<std::shared_ptr<Call>>(call);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, stack_bytes);
    pthread_t thread;
    const int error = pthread_create(&thread, &attributes, &run_call, argument.get());
    pthread_attr_destroy(&attributes);
    if (error != 0) throw Error("cannot start a thread that compiles the grammar");
    argument.release();
}

bool has_ended(const std::future<void>& end, std::chrono::milliseconds time = {}) {
    return end.wait_for(time) == std::future_status::ready;
}

}  // namespace

LateThreads::Result LateThreads::run(std::function<void()> work, Time time, Time quick_time) {
    {
        const std::lock_guard<std::mutex> lock(m_mutex);
        const auto ended = [](const std::future<void>& each) { return has_ended(each); };
        m_late.erase(std::remove_if(m_late.begin(), m_late.end(), ended), m_late.end());
        if (m_late.size() >= m_most_late) return Result::TOO_MANY_LATE;
    }
    const auto call = std::make_shared<Call>(std::move(work));
    std::future<void> end = call->task.get_future();
    start_detached(call, m_stack_bytes);
    bool gives_way = false;
    for (Time used{0}; used < time;) {
        if (has_ended(end, look_interval)) {
            end.get();
            return Result::DONE;
        }
        const std::lock_guard<std::mutex> lock(call->mutex);
        if (!call->thread) continue;
        used = call->thread->processor_time();
        if (used >= quick_time && !std::exchange(gives_way, true)) call->thread->lower_priority();
    }
    const std::lock_guard<std::mutex> lock(m_mutex);
    m_late.push_back(std::move(end));
    return Result::LATE;
}

GrammarCompiler::GrammarCompiler(GrammarVocabulary vocabulary, GrammarLimits limits)
    : m_limits(limits),
      m_vocabulary(std::move(vocabulary)),
      m_threads(limits.compile_stack, limits.late_compilations),
      m_translations(limits.compile_stack, limits.late_compilations) {
    SpecialTokens special_tokens;
    for (const int64_t token : m_vocabulary.special_tokens)
        special_tokens.emplace_back(m_vocabulary.tokens.at(size_t(token)), token);
    m_special_tokens = std::make_shared<const SpecialTokens>(std::move(special_tokens));
}

std::shared_ptr<const llguidance::SharedTokenizer> GrammarCompiler::tokenizer() {
    const std::lock_guard<std::mutex> lock(m_tokenizer_mutex);
    if (m_tokenizer) return m_tokenizer;
    const Clock::time_point begin = Clock::now();
    m_tokenizer = llguidance::make_tokenizer(m_vocabulary);
    m_preparation_time = Clock::now() - begin;
    return m_tokenizer;
}

std::chrono::duration<float, std::milli> GrammarCompiler::preparation_time() const {
    const std::lock_guard<std::mutex> lock(m_tokenizer_mutex);
    return m_preparation_time;
}

std::shared_ptr<CompiledGrammar> GrammarCompiler::compile(const StructuredOutputConfig& config) {
    const GrammarSource source = translate(config);
    try {
        return compile(source);
    } catch (const GrammarError& error) {
        if (error.code() != ErrorCode::grammar_invalid) throw;
        throw GrammarError(explain_refusal(config, source, error.what()));
    }
}

GrammarSource GrammarCompiler::translate(const StructuredOutputConfig& config) {
    const auto source = std::make_shared<GrammarSource>();
    run(m_translations, [source, config, special_tokens = m_special_tokens, limits = m_limits] {
        *source = to_grammar_source(config, *special_tokens, limits);
    });
    return std::move(*source);
}

void GrammarCompiler::run(LateThreads& threads, std::function<void()> work) {
    const auto result =
        threads.run(std::move(work), m_limits.compile_time, m_limits.quick_compile_time);
    if (result == LateThreads::Result::LATE)
        throw GrammarError(concat("a grammar that takes more than ", m_limits.compile_time.count(),
                                  " ms of a processor to compile"));
    if (result == LateThreads::Result::TOO_MANY_LATE)
        throw GrammarError(concat("no grammar is compiled while ", m_limits.late_compilations,
                                  " others take too long; try again later"),
                           ErrorCode::grammar_busy);
}

std::shared_ptr<CompiledGrammar> GrammarCompiler::compile(const GrammarSource& source) {
    if (source.text.size() > m_limits.text_bytes)
        throw GrammarError(concat("a grammar of ", source.text.size(), " bytes; allowed are ",
                                  m_limits.text_bytes));
    if (source.text.find('\0') != std::string::npos)
        throw GrammarError("a grammar with a zero byte");
    const std::string key = source.kind + '\0' + source.text;
    if (auto kept = find(key)) return kept;

    // The vocabulary is prepared once, for all grammars: that is no time of this one's.
    const auto shared_tokenizer = tokenizer();
    const auto compiled = std::make_shared<std::shared_ptr<CompiledGrammar>>();
    run(m_threads, [compiled, shared_tokenizer, source, limits = m_limits] {
        *compiled = std::make_shared<CompiledGrammar>(shared_tokenizer, source, limits);
    });
    keep(key, *compiled);
    return *compiled;
}

std::shared_ptr<CompiledGrammar> GrammarCompiler::find(const std::string& key) {
    const std::lock_guard<std::mutex> lock(m_cache_mutex);
    const auto found = std::find_if(m_entries.begin(), m_entries.end(),
                                    [&](const Entry& each) { return each.first == key; });
    if (found == m_entries.end()) return nullptr;
    if (found->second->is_spent()) {
        m_entries.erase(found);
        return nullptr;
    }
    m_entries.splice(m_entries.begin(), m_entries, found);
    return m_entries.front().second;
}

void GrammarCompiler::keep(const std::string& key,
                           const std::shared_ptr<CompiledGrammar>& grammar) {
    const std::lock_guard<std::mutex> lock(m_cache_mutex);
    m_entries.remove_if([&](const Entry& each) { return each.first == key; });  // another thread's
    m_entries.emplace_front(key, grammar);
    size_t count = 0, bytes = 0;
    const auto is_too_much = [&](const Entry& each) {
        bytes += each.first.size();
        return ++count > m_limits.cached_grammars || (count > 1 && bytes > m_limits.cached_bytes);
    };
    m_entries.erase(std::find_if(m_entries.begin(), m_entries.end(), is_too_much), m_entries.end());
}

}  // namespace pagewheel
