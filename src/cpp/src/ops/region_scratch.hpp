// What a call of a region has for itself.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "ops/cache_directory.hpp"
#include "ops/native_op.hpp"

namespace pagewheel {

/// Memory of one call. It grows to the largest call's and is kept, so that steps like earlier ones
/// allocate nothing.
class RegionScratch {
public:
    /// At least so many floats, 64-byte aligned; what was there before is lost.
    float* floats(size_t count) {
        if (m_lines.size() * floats_per_line < count) {
            m_lines = {};  // nothing is kept, so nothing is there twice
            m_lines.resize((count + floats_per_line - 1) / floats_per_line);
        }
        return m_lines.empty() ? nullptr : m_lines.front().floats;
    }
    static constexpr size_t floats_per_line = 16;

    struct Value {
        float* values;  ///< of an input: never written
        size_t count;   ///< rows
    };
    std::vector<Value> values;  ///< of the region
    std::vector<size_t> slots;  ///< where each begins, in floats
    CacheDirectory caches;
    NativeInputs inputs;  ///< of one step
    std::vector<float*> outputs;
    ov::Shape shape;

private:
    struct alignas(64) Line {
        float floats[floats_per_line];
    };
    std::vector<Line> m_lines;
};

/// As many scratches as there were calls at once. They are the plan's and not the threads', so that
/// a model that goes takes its memory with it, and not the node's, because the plugin may run one
/// node for several streams.
class RegionScratchPool {
public:
    /// Borrows one for its own lifetime.
    class Lease {
    public:
        explicit Lease(RegionScratchPool& pool) : m_pool(pool), m_scratch(pool.take()) {}
        ~Lease() { m_pool.give_back(std::move(m_scratch)); }
        Lease(const Lease&) = delete;
        Lease& operator=(const Lease&) = delete;

        RegionScratch& operator*() const { return *m_scratch; }

    private:
        RegionScratchPool& m_pool;
        std::unique_ptr<RegionScratch> m_scratch;
    };

private:
    std::unique_ptr<RegionScratch> take();
    void give_back(std::unique_ptr<RegionScratch> scratch);

    std::mutex m_mutex;
    std::vector<std::unique_ptr<RegionScratch>> m_free;  // has room for all there are
    size_t m_made = 0;
};

}  // namespace pagewheel
