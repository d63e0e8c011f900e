// Which of a step's new tokens are computed to the end.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "graph/port_names.hpp"
#include "runtime/input_tensor.hpp"
#include "scheduling/batch.hpp"

namespace pagewheel {

/// The logits indices are the last few of each entry's new tokens. They hold all whose logits are
/// wanted and, in a model with the input logits_indices, all whose attention is observed. Without
/// that input sampled_tokens_indices are the logits indices.
///
/// OpenVINO leaves its attention out where it has no query, with an output of the shape it had
/// before. Where that attention has queries for logits indices, the batch's last token is always
/// one.
class LogitsIndices {
public:
    LogitsIndices() = default;
    explicit LogitsIndices(const ov::CompiledModel& model)
        : m_hold_observed(InputTensor(model, ports::logits_indices).exists()),
          m_hold_last(InputTensor(model, ports::logits_past_lens).exists()) {}

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
