// What a grammar may cost, so that a stranger's schema harms nobody but its own request.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace pagewheel {

struct GrammarLimits {
    size_t text_bytes = 4'000'000;  ///< of a grammar, before and after its translation
    size_t nesting = 64;            ///< of Concat, Union, Tag... in each other
    size_t ebnf_nesting = 200;      ///< of parentheses in EBNF
    size_t ebnf_depth = 700;  ///< of a rule: parentheses, alternatives, sequences and repetitions
    size_t ebnf_parts = 2'000'000;  ///< characters, classes and rules in EBNF: 200 bytes each
    size_t repetitions = 100'000;   ///< the bound of {m,n} in EBNF

    // Processor time of a translation and of a compilation.
    /// After which the caller gets an error. The library's own limits end the compilation then.
    std::chrono::milliseconds compile_time{10'000};
    std::chrono::milliseconds quick_compile_time{500};  ///< then it gives way to other threads
    size_t late_compilations = 4;              ///< that may run on after their caller got the error
    size_t compile_stack = size_t(256) << 20;  ///< address space; memory only as far as it is used

    // The library's, in its units.
    uint64_t compile_fuel = 2'000'000;  ///< nodes of regular expressions
    size_t grammar_symbols = 500'000;
    size_t lexer_states = 50'000;  ///< 1 to 2 kB each, shared by all sequences of the grammar
    uint64_t step_fuel = 200'000;  ///< of the lexer in one mask, 14,000 in a millisecond
    /// Of the parser in one mask. 20,000 in a millisecond, where a place has few: each is looked
    /// for among all others of its place.
    size_t step_items = 50'000;
    size_t row_items = 2'000;  ///< ways to read one position

    // In an engine, processor time of each request's masks and jump-forward tokens.
    /// That it may hold steps up, at its beginning and at most. It gets more with each work.
    std::chrono::nanoseconds hold_time{20'000'000}, hold_time_per_work{100'000};
    /// Of all works that would hold steps up longer. A sequence ends where they take more.
    std::chrono::nanoseconds late_time{5'000'000'000}, late_time_per_work{20'000'000};

    size_t cached_grammars = 32;
    size_t cached_bytes = 16'000'000;  ///< of their texts; the last used is kept in any case
};

}  // namespace pagewheel
