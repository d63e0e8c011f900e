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
    const bool has_before = before > 0, has_after = after <= most_rows;
    if (!has_before && !has_after) return 1 + slope * rows;
    if (!has_before) return m_shape[after];
    if (has_after && after > before)
        return m_shape[before] + (m_shape[after] - m_shape[before]) * (rows - double(before)) /
                                     double(after - before);
    return m_shape[before] * (1 + slope * (rows - double(before)));
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
        shape = time / m_level;
        return;
    }
    time = std::min(time, 2 * shape * m_level);  // whatever else the machine did
    const double pace = std::max(shape_pace, 1.0 / double(m_seen[rows] - 1));
    const double next_shape = shape + pace * (time / m_level - shape);
    m_level += level_pace * (time / shape - m_level);
    shape = next_shape;
}

}  // namespace pagewheel
