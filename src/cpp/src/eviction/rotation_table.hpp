// Cosines and sines of the angles by which keys are rotated back.
#pragma once

#include <cstddef>
#include <vector>

#include "model/rotary.hpp"

namespace pagewheel {

/// For one rotary kind: row e is cos [dims / 2] then sin [dims / 2] of e * inverse_frequencies.
/// Rows are computed in double, as they are first needed.
class RotationTable {
public:
    RotationTable() = default;
    explicit RotationTable(RotaryKind kind) : m_kind(std::move(kind)) {}

    size_t dims() const { return m_kind.dims; }
    size_t num_rows() const { return m_num_rows; }
    /// Of all rows together.
    size_t size() const { return m_values.size(); }
    /// At least rows [0, largest]. True if the table changed, and data() with it.
    bool grow(size_t largest);
    /// f32 [num_rows, dims].
    const float* data() const { return m_values.data(); }

private:
    RotaryKind m_kind;
    size_t m_num_rows = 0;
    std::vector<float> m_values;
};

}  // namespace pagewheel
