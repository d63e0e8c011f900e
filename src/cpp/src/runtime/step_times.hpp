// How long steps take by the number of rows that they compute.
#pragma once

#include <array>
#include <cstddef>

namespace pagewheel {

/// Estimates what a step of so many rows takes, relative to others, from steps that were made. A
/// time is a level, which follows context and load, times a shape over the rows.
class StepTimes {
public:
    static constexpr size_t most_rows = 64;  ///< steps of more are not measured

    void record(size_t rows, double time);
    /// In units of the level. Of rows that were never measured, and of parts of a row: between
    /// their neighbours, or above the last one by a little for each row, so that it is tried. Never
    /// more than what was measured of more rows.
    double of(double rows) const;
    /// Microseconds; 0: nothing was measured.
    double level() const { return m_level; }

private:
    double m_level = 0;
    std::array<double, most_rows + 1> m_shape{};  // 0: not measured
    std::array<size_t, most_rows + 1> m_seen{};   // the first step of its size does not count
};

}  // namespace pagewheel
