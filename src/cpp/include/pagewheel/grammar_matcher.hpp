// What a grammar allows one sequence to generate next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pagewheel/errors.hpp"
#include "pagewheel/visibility.hpp"

namespace pagewheel {

/// A grammar that is refused. The message names what is wrong with it, and the place.
class PAGEWHEEL_API GrammarError : public InvalidArgument {
public:
    explicit GrammarError(const std::string& message, ErrorCode code = ErrorCode::grammar_invalid,
                          const std::string& parameter = "structured_output_config")
        : InvalidArgument(message, code, parameter) {}
};

/// A matcher that cannot go on: no token continues the text, or a limit of one step is reached.
/// Every later call throws it too.
class PAGEWHEEL_API GrammarFailure : public Error {
public:
    explicit GrammarFailure(const std::string& message)
        : Error(message, ErrorCode::grammar_failed) {}
};

/// The state of one sequence in a grammar. Each function may be called from any thread, and but for
/// cancel() by one thread at a time. Tokens are ids of the vocabulary that the grammar was compiled
/// for.
class PAGEWHEEL_API GrammarMatcher {
public:
    virtual ~GrammarMatcher() = default;

    /// 32-bit words of a mask: one bit per token of the vocabulary, rounded up.
    virtual size_t mask_words() const = 0;
    /// Sets bit i % 32 of bits[i / 32] where token i may come next, and clears the others. Stop
    /// tokens may come where the text may end. Special tokens may come where the grammar names
    /// them. After the end no token may. Throws GrammarFailure.
    virtual void compute_mask(uint32_t* bits) = 0;
    /// Takes the next token. False if it may not come: then nothing has changed.
    virtual bool accept(int64_t token) = 0;
    /// Takes back the last tokens. Throws InvalidArgument for more than were accepted.
    virtual void roll_back(size_t tokens) = 0;
    /// The tokens that must come next whatever the model says, as the tokenizer writes their text.
    /// Tokens that later text might change are left out. They are not accepted yet.
    virtual std::vector<int64_t> jump_forward_tokens() = 0;
    /// The text so far is whole: a stop token may come.
    virtual bool is_accepting() = 0;
    /// A stop token was accepted, or nothing else may come.
    virtual bool is_finished() = 0;
    /// Tokens accepted and not rolled back.
    virtual size_t token_count() const = 0;
    /// Ends it: the mask that another thread computes fails soon, and so does every later one.
    virtual void cancel() = 0;
    /// A copy of this state, for a sequence that forks.
    virtual std::unique_ptr<GrammarMatcher> clone() const = 0;
};

}  // namespace pagewheel
