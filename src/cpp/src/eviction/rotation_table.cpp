#include "eviction/rotation_table.hpp"

#include <cmath>

namespace pagewheel {

bool RotationTable::grow(size_t largest) {
    if (largest < m_num_rows || m_kind.dims == 0) return false;
    const size_t half = m_kind.dims / 2, first = m_num_rows;
    m_num_rows = 2 * largest + 1;
    m_values.resize(m_num_rows * m_kind.dims);
    for (size_t row = first; row < m_num_rows; ++row)
        for (size_t i = 0; i < half; ++i) {
            // The model's graph holds the frequencies in f32, and rotates by those.
            const double angle = double(row) * double(float(m_kind.inverse_frequencies[i]));
            m_values[row * m_kind.dims + i] = float(std::cos(angle));
            m_values[row * m_kind.dims + half + i] = float(std::sin(angle));
        }
    return true;
}

}  // namespace pagewheel
