// What processors know of a prompt, read once for all sequences of a request.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "pagewheel/logits_processor.hpp"

namespace pagewheel {

/// The state of a processor that reads its sequence's tokens. Those of one request are copies of
/// one another: the first that is asked reads their prompt. Any thread may ask each of them.
///
/// State has read(tokens, end), which goes on where it was, and seal(), behind the prompt.
template <class State>
class SharedPrompt {
public:
    explicit SharedPrompt(State blank) : m_prompt(std::make_shared<Prompt>(std::move(blank))) {}

    /// The state after all tokens of the history.
    State& read(const TokenHistory& history) {
        if (!m_state) {
            std::call_once(m_prompt->is_read, [&] {
                m_prompt->state.read(history.tokens, history.prompt_length);
                m_prompt->state.seal();
            });
            m_state = m_prompt->state;
        }
        m_state->read(history.tokens, history.tokens.size());
        return *m_state;
    }

private:
    struct Prompt {
        explicit Prompt(State blank) : state(std::move(blank)) {}

        std::once_flag is_read;
        State state;
    };

    std::shared_ptr<Prompt> m_prompt;
    std::optional<State> m_state;
};

}  // namespace pagewheel
