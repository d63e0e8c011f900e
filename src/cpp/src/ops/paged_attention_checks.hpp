// What PagedAttention's inputs must satisfy before a kernel may follow their indices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "openvino/runtime/tensor.hpp"
#include "ops/attention_tables.hpp"
#include "ops/paged_attention.hpp"

namespace pagewheel {

/// An i32 input of one dimension.
struct IntegerTable {
    const char* name;
    const int32_t* values = nullptr;
    size_t size = 0;

    IntegerTable(const char* name, const int32_t* values, size_t size)
        : name(name), values(values), size(size) {}
    /// Throws std::invalid_argument for another type.
    IntegerTable(const char* name, const ov::Tensor& tensor);

    int64_t operator[](size_t i) const { return values[i]; }
    void check_size(size_t expected) const;
};

/// What every call of PagedAttention has, in separate inputs or packed.
struct BatchTables {
    IntegerTable past_lens, subsequence_begins, block_indices, block_indices_begins;

    /// Of PagedAttention's inputs. Throws std::invalid_argument if they are of neither form.
    explicit BatchTables(const ov::TensorVector& inputs);

private:
    BatchTables(const ov::TensorVector& inputs, const std::optional<UnpackedTables>& packed);
};

/// `inputs` are those of PagedAttention, of either form, and `batch` the tables among them. Throws
/// std::invalid_argument that names the input, what it says and what is allowed. After it, no index
/// leads out of a tensor: shapes fit the attributes, every sequence has at least one new token and
/// enough blocks for its context, block ids are in the pool, begins ascend, rotation entries ascend
/// and their deltas are rows of the table.
void check_paged_attention(const PagedAttention::Attributes& attributes,
                           const ov::TensorVector& inputs, const BatchTables& batch);

/// Any sequence asks for scores.
bool wants_scores(const ov::Tensor& score_windows);

}  // namespace pagewheel
