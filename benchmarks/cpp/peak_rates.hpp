// What a processor's arithmetic gives at best, beside which kernels are measured.
#pragma once

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

}  // namespace pagewheel::benchmark
