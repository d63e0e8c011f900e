// The inputs of a model that say which tokens a step computes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "model/port_names.hpp"
#include "openvino/runtime/compiled_model.hpp"
#include "openvino/runtime/infer_request.hpp"
#include "scheduling/sequence.hpp"

namespace pagewheel {

/// A tensor of one or two dimensions, or a scalar, bound by a port that is resolved once. It keeps
/// its memory from step to step: resizing it allocates only beyond twice the largest size so far.
class InputTensor {
public:
    InputTensor() = default;
    /// If the model has no input of that name, the tensor is filled for nobody.
    InputTensor(const ov::CompiledModel& model, const std::string& name);

    bool exists() const { return m_exists; }

    template <class T>
    T* resize(ov::InferRequest& request, size_t size) {
        return data<T>(request, 1, size, 0);
    }
    template <class T>
    T* resize(ov::InferRequest& request, size_t rows, size_t columns) {
        return data<T>(request, 2, rows, columns);
    }
    template <class T>
    T& scalar(ov::InferRequest& request) {
        return *data<T>(request, 0, 0, 0);
    }
    /// Another tensor takes its place, whose memory is the caller's.
    void bind(ov::InferRequest& request, const ov::Tensor& tensor) const {
        request.set_input_tensor(m_index, tensor);
    }

private:
    template <class T>
    T* data(ov::InferRequest& request, size_t rank, size_t rows, size_t columns) {
        reshape(request, ov::element::from<T>(), rank, rows, columns);
        return static_cast<T*>(m_data);
    }
    void reshape(ov::InferRequest& request, const ov::element::Type& type, size_t rank, size_t rows,
                 size_t columns);

    size_t m_index = 0;
    bool m_exists = false;
    size_t m_capacity = 0;  // elements
    ov::Tensor m_tensor;
    void* m_data = nullptr;  // the tensor's: asking it checks types every time
    ov::Shape m_shape;  // the tensor's, kept here so that comparing and setting it allocates none
};

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

    /// The number of batch entry i; `windows` as AttentionInputs::fill() takes them.
    size_t count(const Batch& batch, size_t i, const std::vector<size_t>& windows) const {
        const BatchEntry& entry = batch.entries[i];
        const size_t observed = m_hold_observed && !windows.empty() ? windows[i] : 0;
        const size_t least = m_hold_last && i + 1 == batch.entries.size() ? 1 : 0;
        return std::max({entry.num_logits, std::min(observed, entry.num_tokens), least});
    }

private:
    bool m_hold_observed = false, m_hold_last = false;
};

/// The new tokens, their positions, the rows that are computed to the end and those whose logits
/// are wanted: in the order of the entries, and after these at most one that nobody wants
/// (LogitsIndices). Filling them allocates nothing unless a batch is more than twice as large as
/// any before.
class TokenInputs {
public:
    TokenInputs() = default;
    explicit TokenInputs(const ov::CompiledModel& model);

    /// `windows` as AttentionInputs::fill() takes them.
    void fill(ov::InferRequest& request, const Batch& batch, const std::vector<size_t>& windows);

private:
    void fill_tokens(ov::InferRequest& request, const Batch& batch);
    void fill_logits_indices(ov::InferRequest& request, const Batch& batch,
                             const std::vector<size_t>& windows);
    void fill_sampled_tokens_indices(ov::InferRequest& request, const Batch& batch,
                                     const std::vector<size_t>& windows);

    LogitsIndices m_indices;
    InputTensor m_input_ids, m_position_ids, m_logits_indices, m_sampled_tokens_indices;
};

}  // namespace pagewheel
