// What a processor's arithmetic gives at best, beside which kernels are measured.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace pagewheel::benchmark {

/// An instruction's rate on all threads of the calling thread's arena: operands stay in registers,
/// a multiplication and an addition count as two.
struct PeakRate {
    std::string instruction;
    double tera = 0;  // operations a second
};

/// Of those that this processor has; some milliseconds each.
std::vector<PeakRate> peak_rates();

/// How fast all threads of the arena read at once, each of them memory of its own again and again.
struct ReadRate {
    size_t bytes_of_thread = 0;
    double gigabytes = 0;  // a second, of all threads
};

/// Of sizes that lie in L2, in L3 and in neither, up to `most` bytes a thread. Nothing where there
/// is no AVX-512.
std::vector<ReadRate> read_rates(size_t most);

}  // namespace pagewheel::benchmark
