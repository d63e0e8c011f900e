// What the calling thread is doing for an engine, so that no call waits for its own thread.
#pragma once

namespace pagewheel {

class RequestQueue;

/// While an object lives, its thread has a role for an engine, which `queue` stands for. Callbacks
/// of the caller's run on such threads and may call anything; calls that would wait for their own
/// thread find out here. Objects nest.
class ThreadRole {
public:
    enum class Kind {
        STEP,  ///< makes a step and holds its lock: eviction policies and logits processors may be
               ///< asked
        CALLER,   ///< in step() or generate() without the lock: streamers and callbacks run
        SERVICE,  ///< the thread of start(): the same for all that it does
    };

    ThreadRole(const RequestQueue& queue, Kind kind)
        : m_queue(queue), m_kind(kind), m_outer(current()) {
        current() = this;
    }
    ~ThreadRole() { current() = m_outer; }
    ThreadRole(const ThreadRole&) = delete;
    ThreadRole& operator=(const ThreadRole&) = delete;

    /// Whether the calling thread is in this role, whatever others it took since.
    static bool is(const RequestQueue& queue, Kind kind) {
        for (const ThreadRole* role = current(); role; role = role->m_outer)
            if (&role->m_queue == &queue && role->m_kind == kind) return true;
        return false;
    }

    /// The same for any engine.
    static bool is_any(Kind kind) {
        for (const ThreadRole* role = current(); role; role = role->m_outer)
            if (role->m_kind == kind) return true;
        return false;
    }

private:
    static const ThreadRole*& current() {
        static thread_local const ThreadRole* innermost = nullptr;
        return innermost;
    }

    const RequestQueue& m_queue;
    const Kind m_kind;
    const ThreadRole* const m_outer;
};

}  // namespace pagewheel
