// Items that are divided among threads beforehand, and taken over from those that are late.
#pragma once

#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pagewheel::kernels {

/// Items [0, items) in shares of neighbours, one for each thread of the calling thread's TBB arena.
/// By the threads' places in the arena they have the same from call to call. Who is done with his
/// own takes the latter half of what another has not begun.
class Shares {
public:
    explicit Shares(size_t items)
        : m_items(items),
          m_count(std::clamp<size_t>(size_t(tbb::this_task_arena::max_concurrency()), 1, most)) {
        for (size_t i = 0; i < m_count; ++i) {
            m_shares[i].left.store(pack(items * i / m_count, items * (i + 1) / m_count),
                                   std::memory_order_relaxed);
            m_shares[i].owned.store(false, std::memory_order_relaxed);
        }
    }

    /// Calls body(item) for items of the calling thread until none is left to take. Waits for
    /// nobody. Once for each thread.
    template <class Body>
    void work(const Body& body) {
        Share* own = own_share();
        size_t done = 0;
        for (size_t item; take_first(own, item) || take_over(own, item); ++done) body(item);
        m_done.fetch_add(done, std::memory_order_release);
    }

    /// Whether all items are done; what they wrote is seen then.
    bool all_done() const { return m_done.load(std::memory_order_acquire) == m_items; }

private:
    static constexpr size_t most = 64;

    struct alignas(64) Share {
        std::atomic<uint64_t> left;  // the first item in the low half, the end in the high one
        std::atomic<bool> owned;     // only the owner puts items into it
    };

    static uint64_t pack(size_t begin, size_t end) { return begin | uint64_t(end) << 32; }
    static size_t begin(uint64_t left) { return uint32_t(left); }
    static size_t end(uint64_t left) { return size_t(left >> 32); }

    /// Of the thread's place in the arena or, should another have that, of none.
    Share* own_share() {
        const int place = std::max(tbb::this_task_arena::current_thread_index(), 0);
        Share& share = m_shares[size_t(place) % m_count];
        return share.owned.exchange(true, std::memory_order_relaxed) ? nullptr : &share;
    }

    static bool take_first(Share* own, size_t& item) {
        if (!own) return false;
        uint64_t left = own->left.load(std::memory_order_relaxed);
        while (begin(left) < end(left))
            if (own->left.compare_exchange_weak(left, left + 1, std::memory_order_relaxed)) {
                item = begin(left);
                return true;
            }
        return false;
    }

    /// Half of what another has, the first of it as `item`; one item for a thread without a share.
    bool take_over(Share* own, size_t& item) {
        for (size_t i = 0; i < m_count; ++i) {
            uint64_t left = m_shares[i].left.load(std::memory_order_relaxed);
            while (begin(left) < end(left)) {
                const size_t rest = (end(left) - begin(left) + 1) / 2;
                item = end(left) - (own ? rest : 1);
                if (!m_shares[i].left.compare_exchange_weak(left, pack(begin(left), item),
                                                            std::memory_order_relaxed))
                    continue;
                if (own) own->left.store(pack(item + 1, end(left)), std::memory_order_relaxed);
                return true;
            }
        }
        return false;
    }

    size_t m_items, m_count;
    Share m_shares[most];
    alignas(64) std::atomic<size_t> m_done{0};
};

}  // namespace pagewheel::kernels
