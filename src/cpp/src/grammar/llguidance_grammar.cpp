#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/check.hpp"
#include "grammar/grammar.hpp"
#include "grammar/llguidance_api.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel::llguidance {
namespace {

constexpr size_t most_tokenized_texts = 4096;
constexpr size_t longest_kept_text = 256;
// What the library knows a special token by: this byte, then its name.
constexpr char special_mark = '\xff';

template <class T>
using Handle = std::unique_ptr<T, void (*)(T*)>;

/// Its begin and its end where it is long, as where a whole regex is quoted.
std::string shortened(const std::string& text) {
    constexpr size_t part = 600;
    if (text.size() <= 3 * part) return text;
    const auto is_within_character = [&](size_t at) { return (text[at] & 0xc0) == 0x80; };
    size_t begin = part, end = text.size() - part;
    while (begin > 0 && is_within_character(begin)) --begin;
    while (end < text.size() && is_within_character(end)) ++end;
    return text.substr(0, begin) + " ... " + text.substr(end);
}

/// Without what is for the library's authors: states, backtraces, marks of brevity.
std::string readable(const char* error) {
    std::string text = error ? error : "unknown error";
    for (const char* end : {"\n<state>", "\n<non-verbose/>", "\n<backtrace>"})
        text.resize(std::min(text.find(end), text.size()));
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return shortened(text);
}

/// Whether exactly one token is allowed.
bool is_single(const uint32_t* bits, size_t words) {
    size_t count = 0;
    for (size_t i = 0; i < words && count < 2; ++i)
        if (bits[i] != 0) count += (bits[i] & (bits[i] - 1)) == 0 ? 1 : 2;
    return count == 1;
}

ParserLimits to_parser_limits(const GrammarLimits& limits) {
    ParserLimits result = {};
    result.row_items = limits.row_items;
    result.compile_fuel = limits.compile_fuel;
    result.step_fuel = limits.step_fuel;
    result.step_items = limits.step_items;
    result.lexer_states = limits.lexer_states;
    result.grammar_symbols = limits.grammar_symbols;
    result.precompute_large_lexemes = true;
    return result;
}

}  // namespace

/// A model's vocabulary: made once, shared by all of the model's grammars.
class SharedTokenizer {
public:
    explicit SharedTokenizer(GrammarVocabulary vocabulary)
        : m_api(load()),
          m_vocabulary(std::move(vocabulary)),
          m_is_special(m_vocabulary.tokens.size()) {
        for (const int64_t token : m_vocabulary.special_tokens)
            m_is_special.at(size_t(token)) = true;
        list_texts();

        std::vector<uint32_t> lengths;
        std::string bytes;
        for (size_t i = 0; i < m_vocabulary.tokens.size(); ++i) {
            const std::string& token = m_vocabulary.tokens[i];
            const size_t begin = bytes.size();
            if (m_is_special[i]) bytes += special_mark;
            bytes += token;
            lengths.push_back(uint32_t(bytes.size() - begin));
        }
        // The library's own end of text, behind the vocabulary: which tokens really end a text
        // differs from request to request, so matchers add them.
        const std::string end_of_text = std::string(1, special_mark) + "<|end of text|>";
        lengths.push_back(uint32_t(end_of_text.size()));
        bytes += end_of_text;
        TokenizerOptions options = {};
        options.struct_size = sizeof(options);
        options.token_count = uint32_t(lengths.size());
        options.end_token = uint32_t(m_vocabulary.tokens.size());
        options.token_lengths = lengths.data();
        options.token_bytes = reinterpret_cast<const uint8_t*>(bytes.data());
        options.tokenize_only_utf8 = true;
        options.tokenize = &tokenize_bytes;
        options.user = this;
        char error[1000] = "";
        m_handle = m_api.new_tokenizer_v2(&options, error, sizeof(error));
        if (!m_handle) throw Error(concat("llguidance refuses the vocabulary: ", error));
    }
    ~SharedTokenizer() { m_api.free_tokenizer(m_handle); }
    SharedTokenizer(const SharedTokenizer&) = delete;
    SharedTokenizer& operator=(const SharedTokenizer&) = delete;

    const Api& api() const { return m_api; }
    const Tokenizer* handle() const { return m_handle; }
    const GrammarVocabulary& vocabulary() const { return m_vocabulary; }
    bool is_special(int64_t token) const { return m_is_special[size_t(token)]; }
    /// Pairs of tokens with the same bytes. The library sees only one of each.
    const std::vector<std::pair<uint32_t, uint32_t>>& twins() const { return m_twins; }

private:
    void list_texts() {
        for (size_t i = 0; i < m_vocabulary.tokens.size(); ++i) {
            const std::string& token = m_vocabulary.tokens[i];
            if (m_is_special[i] || token.empty()) continue;
            m_longest_token = std::max(m_longest_token, token.size());
            const auto [first, is_new] = m_by_text.emplace(token, uint32_t(i));
            if (!is_new) m_twins.emplace_back(first->second, uint32_t(i));
        }
    }

    std::vector<int64_t> tokenize_greedily(const std::string& text) const {
        std::vector<int64_t> tokens;
        for (size_t at = 0; at < text.size();) {
            size_t length = std::min(m_longest_token, text.size() - at);
            while (length > 1 && m_by_text.count(text.substr(at, length)) == 0) --length;
            const auto found = m_by_text.find(text.substr(at, length));
            if (found == m_by_text.end()) return tokens;
            tokens.push_back(found->second);
            at += length;
        }
        return tokens;
    }

    std::vector<int64_t> tokenize(const std::string& text) const {
        {
            const std::lock_guard<std::mutex> lock(m_mutex);
            const auto found = m_tokenized.find(text);
            if (found != m_tokenized.end()) return found->second;
        }
        std::vector<int64_t> tokens = m_vocabulary.tokenize(text);
        // A text in which a special token's name stands: here it is text.
        const auto is_named = [&](int64_t token) { return is_special(token); };
        if (tokens.empty() || std::any_of(tokens.begin(), tokens.end(), is_named))
            tokens = tokenize_greedily(text);
        if (text.size() <= longest_kept_text) {
            const std::lock_guard<std::mutex> lock(m_mutex);
            if (m_tokenized.size() >= most_tokenized_texts) m_tokenized.clear();
            m_tokenized.emplace(text, tokens);
        }
        return tokens;
    }

    static size_t tokenize_bytes(const void* user, const uint8_t* bytes, size_t byte_count,
                                 uint32_t* tokens, size_t room) {
        const auto& self = *static_cast<const SharedTokenizer*>(user);
        const std::string text(reinterpret_cast<const char*>(bytes), byte_count);
        std::vector<int64_t> found;
        try {
            found = self.tokenize(text);
        } catch (...) {  // it is called by Rust, which no exception may pass
            found = self.tokenize_greedily(text);
        }
        for (size_t i = 0; i < std::min(found.size(), room); ++i) tokens[i] = uint32_t(found[i]);
        return found.size();
    }

    const Api& m_api;
    const GrammarVocabulary m_vocabulary;
    std::vector<bool> m_is_special;
    std::unordered_map<std::string, uint32_t> m_by_text;  // special tokens are not in it
    size_t m_longest_token = 0;
    std::vector<std::pair<uint32_t, uint32_t>> m_twins;
    // Grammars force the same texts again and again, and a tokenizer's call takes 0.2 ms.
    mutable std::mutex m_mutex;
    mutable std::unordered_map<std::string, std::vector<int64_t>> m_tokenized;
    Tokenizer* m_handle = nullptr;
};

std::shared_ptr<const SharedTokenizer> make_tokenizer(GrammarVocabulary vocabulary) {
    return std::make_shared<const SharedTokenizer>(std::move(vocabulary));
}

/// What the grammar and its matchers share.
struct Shared {
    std::shared_ptr<const SharedTokenizer> tokenizer;
    Handle<Matcher> first;  // the beginning, which all matchers are clones of
    std::atomic<bool> is_spent{false};

    const Api& api() const { return tokenizer->api(); }
    Handle<Matcher> clone(const Matcher* matcher) const {
        return {api().clone_matcher(matcher), api().free_matcher};
    }
};

namespace {

class LlguidanceMatcher final : public GrammarMatcher {
public:
    LlguidanceMatcher(std::shared_ptr<Shared> shared, Handle<Matcher> handle,
                      std::vector<int64_t> stop_tokens)
        : m_shared(std::move(shared)),
          m_handle(std::move(handle)),
          m_cancellation(api().matcher_get_cancellation_handle(m_handle.get()),
                         api().free_cancellation_handle),
          m_stop_tokens(std::move(stop_tokens)) {}

    size_t mask_words() const override { return (vocabulary().tokens.size() + 31) / 32; }
    size_t token_count() const override { return m_token_count; }
    void cancel() override { api().cancel(m_cancellation.get()); }

    void compute_mask(uint32_t* bits) override {
        std::fill_n(bits, mask_words(), 0);
        if (m_has_stopped) return;
        if (!api().matcher_is_stopped(m_handle.get())) {
            const size_t byte_count = api().matcher_get_mask_byte_size(m_handle.get());
            m_mask.resize(byte_count / sizeof(uint32_t));
            check(api().matcher_compute_mask_into(m_handle.get(), m_mask.data(), byte_count));
            std::memcpy(bits, m_mask.data(), std::min(byte_count, mask_words() * sizeof(uint32_t)));
            const size_t token_count =
                vocabulary().tokens.size();  // behind them is the library's end
            if (token_count % 32 != 0)
                bits[token_count / 32] &= (uint32_t(1) << (token_count % 32)) - 1;
            allow_twins(bits);
        }
        choose_stop_tokens(bits);
    }

    bool accept(int64_t token) override {
        check_argument(token >= 0 && size_t(token) < vocabulary().tokens.size(), "token ", token,
                       " is not in the vocabulary of ", vocabulary().tokens.size());
        if (m_has_stopped) return false;
        if (is_stop(token)) {
            if (is_accepting() && is_end(token)) {
                m_has_stopped = true;
                ++m_token_count;
                return true;
            }
            if (!m_shared->tokenizer->is_special(token)) return false;
        }
        if (api().matcher_is_stopped(m_handle.get())) return false;
        const auto id = uint32_t(token);
        if (check(api().matcher_validate_tokens(m_handle.get(), &id, 1)) != 1) return false;
        check(api().matcher_consume_token(m_handle.get(), id));
        ++m_token_count;
        return true;
    }

    void roll_back(size_t tokens) override {
        check_argument(tokens <= m_token_count, "roll_back of ", tokens, " tokens; accepted were ",
                       m_token_count);
        if (tokens == 0) return;
        m_token_count -= tokens;
        if (m_has_stopped) --tokens;
        m_has_stopped = false;
        if (tokens > 0) check(api().matcher_rollback(m_handle.get(), tokens));
    }

    std::vector<int64_t> jump_forward_tokens() override {
        if (m_has_stopped || api().matcher_is_stopped(m_handle.get())) return {};
        // Each call finds all that is forced anew, and gives what there is room for.
        constexpr size_t usual_room = 256, most_room = size_t(1) << 20;
        std::vector<uint32_t> tokens;
        size_t count = 0;
        for (size_t room = usual_room; count == tokens.size() && room <= most_room; room *= 16) {
            tokens.resize(room);
            count = size_t(check(
                api().matcher_compute_ff_tokens(m_handle.get(), tokens.data(), tokens.size())));
        }
        return {tokens.begin(), tokens.begin() + std::ptrdiff_t(count)};
    }

    bool is_accepting() override {
        if (m_has_stopped) return true;
        const bool is_accepting = api().matcher_is_accepting(m_handle.get());
        if (!is_accepting && api().matcher_get_error(m_handle.get())) check(-1);
        return is_accepting;
    }

    bool is_finished() override {
        if (m_has_stopped) return true;
        return api().matcher_is_stopped(m_handle.get()) && is_accepting();
    }

    std::unique_ptr<GrammarMatcher> clone() const override {
        auto copy = std::make_unique<LlguidanceMatcher>(m_shared, m_shared->clone(m_handle.get()),
                                                        m_stop_tokens);
        copy->m_token_count = m_token_count;
        copy->m_has_stopped = m_has_stopped;
        return copy;
    }

private:
    const Api& api() const { return m_shared->api(); }
    const GrammarVocabulary& vocabulary() const { return m_shared->tokenizer->vocabulary(); }

    /// The library's calls answer with -1 where they fail, and ever after.
    int32_t check(int32_t result) {
        if (result >= 0) return result;
        // A limit may be one that all its matchers share.
        if (!api().matcher_is_cancelled(m_handle.get())) m_shared->is_spent = true;
        throw GrammarFailure(concat("the grammar cannot go on: ",
                                    readable(api().matcher_get_error(m_handle.get()))));
    }

    bool is_stop(int64_t token) const {
        return std::find(m_stop_tokens.begin(), m_stop_tokens.end(), token) != m_stop_tokens.end();
    }

    /// Whether it ends a text that is whole. One with a text of its own would become part of that,
    /// so it does so only where no stop token is special.
    bool is_end(int64_t token) const {
        const auto is_special = [&](int64_t each) { return m_shared->tokenizer->is_special(each); };
        return is_special(token) ||
               std::none_of(m_stop_tokens.begin(), m_stop_tokens.end(), is_special);
    }

    void allow_twins(uint32_t* bits) const {
        // A token that is forced is the one that the tokenizer writes.
        if (is_single(bits, mask_words())) return;
        for (const auto& [one, other] : m_shared->tokenizer->twins()) {
            const uint32_t is_allowed =
                (bits[one / 32] >> (one % 32) | bits[other / 32] >> (other % 32)) & 1;
            bits[one / 32] |= is_allowed << (one % 32);
            bits[other / 32] |= is_allowed << (other % 32);
        }
    }

    void choose_stop_tokens(uint32_t* bits) {
        const auto set = [&](int64_t token, bool value) {
            uint32_t& word = bits[size_t(token) / 32];
            const uint32_t bit = uint32_t(1) << (token % 32);
            word = value ? word | bit : word & ~bit;
        };
        const bool may_end = is_accepting();
        for (const int64_t token : m_stop_tokens) {
            // A special token that the grammar names may come even where the text cannot end.
            if (may_end && is_end(token))
                set(token, true);
            else if (!m_shared->tokenizer->is_special(token))
                set(token, false);
        }
    }

    std::shared_ptr<Shared> m_shared;
    Handle<Matcher> m_handle;
    Handle<CancellationHandle> m_cancellation;
    std::vector<int64_t> m_stop_tokens;
    std::vector<uint32_t> m_mask;  // where the library's has more words than ours
    size_t m_token_count = 0;      // with the stop token
    bool m_has_stopped = false;    // the last token accepted is a stop token, which only we know
};

}  // namespace

}  // namespace pagewheel::llguidance

namespace pagewheel {

CompiledGrammar::CompiledGrammar(std::shared_ptr<const llguidance::SharedTokenizer> tokenizer,
                                 const GrammarSource& source, const GrammarLimits& limits) {
    const llguidance::Api& api = tokenizer->api();
    llguidance::MatcherOptions options = {};
    options.tokenizer = tokenizer->handle();
    options.forced_tokens_ok = true;
    options.limits = llguidance::to_parser_limits(limits);
    llguidance::Handle<llguidance::Matcher> first(
        api.new_matcher(&options, source.kind.c_str(), source.text.c_str()), api.free_matcher);
    if (const char* error = api.matcher_get_error(first.get()))
        throw GrammarError(llguidance::readable(error));
    m_shared.reset(new llguidance::Shared{std::move(tokenizer), std::move(first)});
}

std::unique_ptr<GrammarMatcher> CompiledGrammar::start(
    const std::vector<int64_t>& stop_tokens) const {
    const GrammarVocabulary& vocabulary = m_shared->tokenizer->vocabulary();
    std::vector<int64_t> stops = stop_tokens;
    if (stops.empty() && vocabulary.end_token >= 0) stops = {vocabulary.end_token};
    for (const int64_t token : stops)
        check_argument(token >= 0 && size_t(token) < vocabulary.tokens.size(), "stop token ", token,
                       " is not in the vocabulary of ", vocabulary.tokens.size());
    return std::make_unique<llguidance::LlguidanceMatcher>(
        m_shared, m_shared->clone(m_shared->first.get()), std::move(stops));
}

bool CompiledGrammar::is_spent() const {
    return m_shared->is_spent;
}

}  // namespace pagewheel
