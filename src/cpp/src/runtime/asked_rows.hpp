// Which of a step's new tokens are computed to the end.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "graph/port_names.hpp"
#include "runtime/input_tensor.hpp"
#include "scheduling/batch.hpp"

namespace pagewheel {

/// The asked rows: the last few of each entry's new tokens. They hold all whose logits are wanted
/// and, in a model with the input asked_rows, all whose attention is observed. Without that input
/// logits_rows are the asked rows.
class AskedRows {
public:
    AskedRows() = default;
    explicit AskedRows(const ov::CompiledModel& model)
        : m_hold_observed(InputTensor(model, ports::asked_rows).exists()) {}

    /// Of batch entry i; `windows` as AttentionInputs::fill() takes them.
    size_t count(const Batch& batch, size_t i, const std::vector<size_t>& windows) const {
        const BatchEntry& entry = batch.entries[i];
        const size_t observed = m_hold_observed && !windows.empty() ? windows[i] : 0;
        return std::max(entry.num_logits, std::min(observed, entry.num_tokens));
    }

private:
    bool m_hold_observed = false;
};

}  // namespace pagewheel
