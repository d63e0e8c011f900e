#include "kernels/work_ranges.hpp"

#include <tbb/task_arena.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace pagewheel::kernels {
namespace {

/// What the calls of one thread keep their ranges in. Of calls within one another each has its own.
class WorkRangesMemory {
public:
    struct Call {
        std::vector<WorkRanges::Range> ranges;
        std::vector<WorkRanges::Group> groups;
    };

    static WorkRangesMemory& mine() {
        static thread_local WorkRangesMemory memory;
        return memory;
    }

    Call& borrow(size_t ranges, size_t groups) {
        if (m_depth == m_calls.size()) m_calls.emplace_back();
        Call& call = m_calls[m_depth];
        if (call.ranges.size() < ranges) call.ranges = std::vector<WorkRanges::Range>(ranges);
        if (call.groups.size() < groups) call.groups = std::vector<WorkRanges::Group>(groups);
        ++m_depth;
        return call;
    }
    void give_back() { --m_depth; }

private:
    std::vector<Call> m_calls;  // those of the first m_depth are in use; moving them moves no range
    size_t m_depth = 0;
};

uint64_t pack(size_t begin, size_t end) {
    return begin | uint64_t(end) << 32;
}

size_t begin_of(uint64_t left) {
    return uint32_t(left);
}

size_t end_of(uint64_t left) {
    return size_t(left >> 32);
}

/// The smallest power of two that is no less.
size_t power_of_two(size_t n) {
    size_t power = 1;
    while (power < n) power *= 2;
    return power;
}

}  // namespace

WorkRanges::WorkRanges(size_t items)
    : m_items(items),
      m_count(std::min(size_t(std::max(tbb::this_task_arena::max_concurrency(), 1)),
                       std::max<size_t>(items, 1))) {
    WorkRangesMemory::Call& memory = WorkRangesMemory::mine().borrow(m_count, groups());
    m_ranges = memory.ranges.data();
    m_groups = memory.groups.data();
    for (size_t i = 0; i < m_count; ++i) {
        m_ranges[i].left.store(pack(first_item(i), first_item(i + 1)), std::memory_order_relaxed);
        m_ranges[i].owned.store(false, std::memory_order_relaxed);
    }
    size_t open = 0;
    for (size_t g = 0; g < groups(); ++g) {
        const size_t end = std::min((g + 1) * group_ranges, m_count);
        const size_t undone = first_item(end) - first_item(g * group_ranges);
        m_groups[g].undone.store(undone, std::memory_order_relaxed);
        m_groups[g].exhausted.store(undone == 0, std::memory_order_relaxed);
        open += undone > 0;
    }
    m_open_groups.store(open, std::memory_order_relaxed);
}

WorkRanges::~WorkRanges() {
    WorkRangesMemory::mine().give_back();
}

WorkRanges::Worker::Worker(WorkRanges& ranges)
    : m_ranges(ranges),
      m_place(size_t(std::max(tbb::this_task_arena::current_thread_index(), 0)) % ranges.m_count),
      m_own(&ranges.m_ranges[m_place]),
      m_group(m_place / group_ranges) {
    if (m_own->owned.exchange(true, std::memory_order_relaxed)) m_own = nullptr;
}

bool WorkRanges::Worker::take_first(size_t& item) {
    if (!m_own) return false;
    uint64_t left = m_own->left.load(std::memory_order_relaxed);
    while (begin_of(left) < end_of(left))
        if (m_own->left.compare_exchange_weak(left, left + 1, std::memory_order_relaxed)) {
            item = begin_of(left);
            ++m_done;
            return true;
        }
    return false;
}

/// Groups, and ranges in them, in the order of place ^ 1, place ^ 2, ...: near ones first, and of
/// threads that look at the same time each at another one.
bool WorkRanges::Worker::steal(size_t& item) {
    const size_t own = m_place / group_ranges, end = power_of_two(m_ranges.groups());
    for (size_t step = 0; step < end; ++step) {
        const size_t group = own ^ step;
        if (group < m_ranges.groups() && steal_in(group, item)) return true;
    }
    return false;
}

bool WorkRanges::Worker::steal_in(size_t group, size_t& item) {
    std::atomic<bool>& exhausted = m_ranges.m_groups[group].exhausted;
    if (exhausted.load(std::memory_order_relaxed)) return false;
    const size_t first = group * group_ranges;
    for (size_t step = 0; step < group_ranges; ++step) {
        const size_t victim = first + ((m_place ^ step) % group_ranges);
        if (victim < m_ranges.m_count && steal_half(m_ranges.m_ranges[victim], item)) return true;
    }
    exhausted.store(true, std::memory_order_relaxed);  // no one has to read all of them again
    return false;
}

/// Half of what the range has, the first of it as `item`; one item for a thread without a range.
bool WorkRanges::Worker::steal_half(Range& victim, size_t& item) {
    uint64_t left = victim.left.load(std::memory_order_relaxed);
    while (begin_of(left) < end_of(left)) {
        const size_t rest = (end_of(left) - begin_of(left) + 1) / 2;
        item = end_of(left) - (m_own ? rest : 1);
        if (!victim.left.compare_exchange_weak(left, pack(begin_of(left), item),
                                               std::memory_order_relaxed))
            continue;
        if (m_own && item + 1 < end_of(left)) {
            m_own->left.store(pack(item + 1, end_of(left)), std::memory_order_relaxed);
            m_ranges.m_groups[m_place / group_ranges].exhausted.store(false,
                                                                      std::memory_order_relaxed);
        }
        count_in(m_ranges.group_of(item));
        return true;
    }
    return false;
}

/// Counts an item of that group, whose neighbours in a range are of it as well.
void WorkRanges::Worker::count_in(size_t group) {
    if (group != m_group) flush();
    m_group = group;
    ++m_done;
}

void WorkRanges::Worker::flush() {
    if (m_done == 0) return;
    const size_t done = std::exchange(m_done, 0);
    // The last of a group has seen what its others wrote, and hands it on.
    if (m_ranges.m_groups[m_group].undone.fetch_sub(done, std::memory_order_acq_rel) == done)
        m_ranges.m_open_groups.fetch_sub(1, std::memory_order_acq_rel);
}

}  // namespace pagewheel::kernels
