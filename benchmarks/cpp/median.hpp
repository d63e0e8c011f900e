// The statistic that every benchmark reports.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace pagewheel::benchmark {

/// Of at least one value; of an even number, the mean of the two in the middle.
inline double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const size_t middle = values.size() / 2;
    return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace pagewheel::benchmark
