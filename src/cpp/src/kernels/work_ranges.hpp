// Items that are divided among threads beforehand, and taken over from those that are late.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pagewheel::kernels {

/// What one thread writes lies so far from what others do: processors fetch lines of 64 bytes in
/// pairs.
constexpr size_t apart = 128;

/// Items [0, items) in ranges of neighbours, one for each thread of the calling thread's TBB arena.
/// By the threads' places in the arena they have the same from call to call. A thread that is done
/// with its own steals the latter half of what another has not begun: first from a thread whose
/// place is near, which is mostly on the same memory node. Each thread looks at another one first.
///
/// Of any number of threads, eight count what is done in a line of their own, so that the end of a
/// call is not one counter that all write.
class WorkRanges {
public:
    /// No more ranges than items. Throws std::bad_alloc.
    explicit WorkRanges(size_t items);
    ~WorkRanges();
    WorkRanges(const WorkRanges&) = delete;
    WorkRanges& operator=(const WorkRanges&) = delete;

    size_t count() const { return m_count; }

    /// Calls body(item) for items of the calling thread until none is left to take. Waits for
    /// nobody. Once for each thread.
    template <class Body>
    void work(const Body& body) {
        Worker worker(*this);
        for (size_t item; worker.take(item);) body(item);
    }

    /// Whether all items are done; what they wrote is seen then.
    bool all_done() const { return m_open_groups.load(std::memory_order_acquire) == 0; }

    struct alignas(apart) Range {
        std::atomic<uint64_t> left;  // the first item in the low half, the end in the high one
        std::atomic<bool> owned;     // only the owner puts items into it
    };

    /// What the threads of eight places count together.
    struct alignas(apart) Group {
        std::atomic<size_t> undone;   // of the items that its ranges had at first
        std::atomic<bool> exhausted;  // no range had an item when someone looked
    };

private:
    static constexpr size_t group_ranges = 8;

    /// A thread's part of a call.
    class Worker {
    public:
        explicit Worker(WorkRanges& ranges);
        ~Worker() { flush(); }
        Worker(const Worker&) = delete;
        Worker& operator=(const Worker&) = delete;

        bool take(size_t& item) { return take_first(item) || steal(item); }

    private:
        bool take_first(size_t& item);
        bool steal(size_t& item);
        bool steal_in(size_t group, size_t& item);
        bool steal_half(Range& victim, size_t& item);
        void count_in(size_t group);
        void flush();

        WorkRanges& m_ranges;
        size_t m_place;
        Range* m_own;                // null where another thread has that of the place
        size_t m_group, m_done = 0;  // of the items that are not yet counted there
    };

    size_t groups() const { return (m_count + group_ranges - 1) / group_ranges; }
    size_t first_item(size_t range) const { return m_items * range / m_count; }
    size_t group_of(size_t item) const {
        return ((item + 1) * m_count - 1) / m_items / group_ranges;
    }

    size_t m_items, m_count;
    Range* m_ranges;                                      // [count], of the calling thread's memory
    Group* m_groups;                                      // [groups()], the same
    alignas(apart) std::atomic<size_t> m_open_groups{0};  // with items that are not done
};

}  // namespace pagewheel::kernels
