// The functions of llguidance's C interface that are called, and where they come from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace pagewheel::llguidance {

/// The versions that were tested, as pip has them. load() refuses others.
constexpr const char* versions = ">=1.9.0,<1.10";

struct Tokenizer;           // theirs
struct Matcher;             // theirs
struct CancellationHandle;  // theirs

// The structs have the layout of the library's header (llguidance.h), under names of our own.
// load() compares it with what the library writes.

struct ParserLimits {
    size_t row_items;
    uint64_t compile_fuel;
    uint64_t step_fuel;
    size_t step_items;
    size_t lexer_states;
    size_t grammar_symbols;
    bool precompute_large_lexemes;
    bool verbose_errors;
};

/// How a matcher is made.
struct MatcherOptions {
    const Tokenizer* tokenizer;
    uint32_t buffer_log_level;
    uint32_t stderr_log_level;
    bool forced_tokens_ok;
    bool backtrack_ok;
    ParserLimits limits;
};

/// Writes up to `room` ids, and returns how many there are.
using TokenizeFunction = size_t (*)(const void* user, const uint8_t* bytes, size_t byte_count,
                                    uint32_t* tokens, size_t room);

struct TokenizerOptions {
    size_t struct_size;
    uint32_t token_count;
    uint32_t end_token;
    const uint32_t* token_lengths;
    const uint8_t* token_bytes;  // all tokens, joined
    const char* tokenizer_json;
    bool tokenize_only_utf8;
    TokenizeFunction tokenize;
    bool tokenize_greedily;
    const void* user;
    const char* const* slices;
    const uint32_t* more_end_tokens;
    uint32_t more_end_token_count;
};

// The functions that are called: result, name behind `llg_`, parameters.
#define PAGEWHEEL_LLGUIDANCE_FUNCTIONS(FUNCTION)                                                 \
    FUNCTION(const char*, get_version, ())                                                       \
    FUNCTION(void, constraint_init_set_defaults, (MatcherOptions*, const Tokenizer*))            \
    FUNCTION(Tokenizer*, new_tokenizer_v2, (const TokenizerOptions*, char* error, size_t room))  \
    FUNCTION(void, free_tokenizer, (Tokenizer*))                                                 \
    FUNCTION(Matcher*, new_matcher, (const MatcherOptions*, const char* kind, const char* text)) \
    FUNCTION(Matcher*, clone_matcher, (const Matcher*))                                          \
    FUNCTION(void, free_matcher, (Matcher*))                                                     \
    FUNCTION(const char*, matcher_get_error, (Matcher*))                                         \
    FUNCTION(size_t, matcher_get_mask_byte_size, (const Matcher*))                               \
    FUNCTION(int32_t, matcher_compute_mask_into, (Matcher*, uint32_t* mask, size_t byte_count))  \
    FUNCTION(int32_t, matcher_consume_token, (Matcher*, uint32_t token))                         \
    FUNCTION(int32_t, matcher_validate_tokens, (Matcher*, const uint32_t* tokens, size_t count)) \
    FUNCTION(int32_t, matcher_rollback, (Matcher*, size_t count))                                \
    FUNCTION(int32_t, matcher_compute_ff_tokens, (Matcher*, uint32_t* tokens, size_t room))      \
    FUNCTION(bool, matcher_is_accepting, (Matcher*))                                             \
    FUNCTION(bool, matcher_is_stopped, (const Matcher*))                                         \
    FUNCTION(CancellationHandle*, matcher_get_cancellation_handle, (Matcher*))                   \
    FUNCTION(bool, matcher_is_cancelled, (const Matcher*))                                       \
    FUNCTION(void, cancel, (const CancellationHandle*))                                          \
    FUNCTION(void, free_cancellation_handle, (CancellationHandle*))

struct Api {
#define PAGEWHEEL_MEMBER(result, name, parameters) result(*name) parameters;
    PAGEWHEEL_LLGUIDANCE_FUNCTIONS(PAGEWHEEL_MEMBER)
#undef PAGEWHEEL_MEMBER
};

/// The shared library that load() opens, where none was linked.
void set_library(const std::string& path);
/// The functions; the library stays until the process ends. Throws Error that says what to install
/// where there is no library, or one of another version or layout.
const Api& load();

}  // namespace pagewheel::llguidance
