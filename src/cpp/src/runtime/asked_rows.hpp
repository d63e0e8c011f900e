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
///
/// OpenVINO leaves its attention out where it has no query, with an output of the shape it had
/// before. Where that attention has queries for asked rows, the batch's last token is always one.
class AskedRows {
public:
    AskedRows() = default;
    explicit AskedRows(const ov::CompiledModel& model)
        : m_hold_observed(InputTensor(model, ports::asked_rows).exists()),
          m_hold_last(InputTensor(model, ports::asked_past_lens).exists()) {}

    /// Of batch entry i; `windows` as AttentionInputs::fill() takes them.
    size_t count(const Batch& batch, size_t i, const std::vector<size_t>& windows) const {
        const BatchEntry& entry = batch.entries[i];
        const size_t observed = m_hold_observed && !windows.empty() ? windows[i] : 0;
        const size_t least = m_hold_last && i + 1 == batch.entries.size() ? 1 : 0;
        return std::max({entry.num_logits, std::min(observed, entry.num_tokens), least});
    }

private:
    bool m_hold_observed = false, m_hold_last = false;
};

}  // namespace pagewheel
