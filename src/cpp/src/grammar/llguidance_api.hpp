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

/// The library's functions, each a pointer with the name behind `llg_`.
struct Api {
    const char* (*get_version)();
    void (*constraint_init_set_defaults)(MatcherOptions*, const Tokenizer*);
    Tokenizer* (*new_tokenizer_v2)(const TokenizerOptions*, char* error, size_t error_size);
    void (*free_tokenizer)(Tokenizer*);
    Matcher* (*new_matcher)(const MatcherOptions*, const char* kind, const char* text);
    Matcher* (*clone_matcher)(const Matcher*);
    void (*free_matcher)(Matcher*);
    const char* (*matcher_get_error)(Matcher*);
    size_t (*matcher_get_mask_byte_size)(const Matcher*);
    int32_t (*matcher_compute_mask_into)(Matcher*, uint32_t* mask, size_t byte_count);
    int32_t (*matcher_consume_token)(Matcher*, uint32_t token);
    int32_t (*matcher_validate_tokens)(Matcher*, const uint32_t* tokens, size_t count);
    int32_t (*matcher_rollback)(Matcher*, size_t count);
    int32_t (*matcher_compute_ff_tokens)(Matcher*, uint32_t* tokens, size_t room);
    bool (*matcher_is_accepting)(Matcher*);
    bool (*matcher_is_stopped)(const Matcher*);
    CancellationHandle* (*matcher_get_cancellation_handle)(Matcher*);
    bool (*matcher_is_cancelled)(const Matcher*);
    void (*cancel)(const CancellationHandle*);
    void (*free_cancellation_handle)(CancellationHandle*);
};

/// The shared library that load() opens, where none was linked.
void set_library(const std::string& path);
/// The functions; the library stays until the process ends. Throws Error that says what to install
/// where there is no library, or one of another version or layout.
const Api& load();

}  // namespace pagewheel::llguidance
