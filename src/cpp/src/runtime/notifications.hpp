// Handles that are to be woken when the step's lock is let go.
#pragma once

#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/request.hpp"

namespace pagewheel {

/// Filled by a step under its lock; its callbacks run after it, and may call everything.
class Notifications {
public:
    void add(Request& request) {
        if (request.state->has_notification) return;
        m_states.push_back(request.state);
        request.state->has_notification = true;
    }
    /// What there is; then there is none.
    Notifications take() {
        for (const auto& state : m_states) state->has_notification = false;
        return std::exchange(*this, {});
    }
    /// All of them, in their order; then throws the first thing that a callback threw.
    void notify() const {
        std::exception_ptr failure;
        for (const auto& state : m_states) {
            try {
                state->wake();
            } catch (...) {
                if (!failure) failure = std::current_exception();
            }
        }
        if (failure) std::rethrow_exception(failure);
    }

private:
    std::vector<std::shared_ptr<GenerationHandle::State>> m_states;
};

}  // namespace pagewheel
