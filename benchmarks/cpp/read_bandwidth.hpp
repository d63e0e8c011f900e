// How fast this machine reads memory, to compare a cache's reader with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pagewheel::benchmark {

class ReadBandwidth {
public:
    /// Reads `bytes` (more than the processor's caches hold) with `threads` threads.
    ReadBandwidth(size_t bytes, int threads);

    /// Bytes per second of one pass.
    double measure();

private:
    std::vector<uint64_t> m_words;
    int m_threads;
    uint64_t m_sum = 0;  // so that nothing is optimised away
};

}  // namespace pagewheel::benchmark
