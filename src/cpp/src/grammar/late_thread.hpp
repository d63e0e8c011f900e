// Work that its caller stops waiting for when it takes too long.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <future>
#include <mutex>
#include <vector>

namespace pagewheel {

/// Runs functions on threads of their own, with the stack that they need.
class LateThreads {
public:
    LateThreads(size_t stack_bytes, size_t most_late)
        : m_stack_bytes(stack_bytes), m_most_late(most_late) {}

    enum class Result { DONE, LATE, TOO_MANY_LATE };
    /// Waits for `work`, `time` at most. If it is late it runs on where nothing else wants the
    /// processors, and what it holds must live as long: `work` may refer to nothing of the
    /// caller's. No work begins where too much is late. An exception of `work` is thrown here.
    Result run(std::function<void()> work, std::chrono::milliseconds time);

private:
    const size_t m_stack_bytes, m_most_late;
    std::mutex m_mutex;
    std::vector<std::future<void>> m_late;  // ends of works that their callers left
};

}  // namespace pagewheel
