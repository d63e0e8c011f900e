#include "runtime/step_times.hpp"

#include <algorithm>
#include <cmath>

namespace pagewheel {
namespace {

constexpr double slope = 0.03;  // of a row that was not measured
constexpr double level_pace = 0.2, shape_pace = 0.03;

}  // namespace

double StepTimes::of(double rows) const {
    size_t before = std::min(size_t(rows), most_rows);
    size_t after = std::min(size_t(std::ceil(rows)), most_rows);
    while (before > 0 && m_shape[before] == 0) --before;
    while (after <= most_rows && m_shape[after] == 0) ++after;
    if (after > most_rows)
        return before > 0 ? m_shape[before] * (1 + slope * (rows - double(before)))
                          : 1 + slope * rows;
    double time = m_shape[after];
    if (before > 0 && after > before)
        time -=
            (m_shape[after] - m_shape[before]) * (double(after) - rows) / double(after - before);
    // More rows take no less time: where few of them took longer, something disturbed the steps.
    for (; after <= most_rows; ++after)
        if (m_shape[after] > 0) time = std::min(time, m_shape[after]);
    return time;
}

void StepTimes::record(size_t rows, double time) {
    if (rows == 0 || rows > most_rows || time <= 0) return;
    if (m_seen[rows]++ == 0) return;
    if (m_level == 0) {
        m_level = time;
        m_shape[rows] = 1;
        return;
    }
    double& shape = m_shape[rows];
    if (shape == 0) {
        // What was expected counts as one measurement, too.
        shape = (of(double(rows)) + time / m_level) / 2;
        return;
    }
    time = std::min(time, 2 * shape * m_level);  // whatever else the machine did
    const double pace = std::max(shape_pace, 1.0 / double(m_seen[rows]));
    const double next_shape = shape + pace * (time / m_level - shape);
    m_level += level_pace * (time / shape - m_level);
    shape = next_shape;
}

}  // namespace pagewheel
