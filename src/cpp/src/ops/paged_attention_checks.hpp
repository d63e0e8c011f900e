// What PagedAttention's inputs must satisfy before a kernel may follow their indices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>

#include "openvino/runtime/tensor.hpp"
#include "ops/paged_attention.hpp"

namespace pagewheel {

/// An input that is no rows.
inline const ov::Tensor& tensor_of(const NativeInputs& inputs, PagedAttention::Input input) {
    return *inputs.tensors[input - PagedAttention::num_rows];
}

/// An i32 input of one dimension.
struct IntegerTable {
    const char* name;
    const int32_t* values = nullptr;
    size_t size = 0;

    explicit IntegerTable(const char* name, const int32_t* values = nullptr, size_t size = 0)
        : name(name), values(values), size(size) {}
    /// Throws std::invalid_argument for another type.
    IntegerTable(const char* name, const ov::Tensor& tensor);

    int64_t operator[](size_t i) const { return values[i]; }
    void check_size(size_t expected) const;
};

/// An input of one or two dimensions whose type and shape are still to be checked.
struct UncheckedMatrix {
    const char* name;
    ov::element::Type type;
    const void* values = nullptr;
    size_t rank = 1, rows = 0, columns = 1;

    size_t size() const { return rows * columns; }
    /// Type and shape.
    friend std::ostream& operator<<(std::ostream& stream, const UncheckedMatrix& matrix);
};

/// What a call of PagedAttention has, in separate inputs or in one of the packed forms.
struct BatchTables {
    IntegerTable past_lens, subsequence_begins, block_indices, block_indices_begins;
    // Empty in the form that has no rotation and scores:
    IntegerTable score_windows, rotated;
    UncheckedMatrix scores, deltas, trig_lut;

    /// Of PagedAttention's inputs. Throws std::invalid_argument if they are of no form.
    BatchTables(const PagedAttention::Attributes& attributes, const NativeInputs& inputs);

    /// Any sequence asks for scores.
    bool wants_scores() const;

private:
    void read_separate(const NativeInputs& inputs);
    void read_packed(const ov::Tensor& packed);
    void read_layer(const PagedAttention::Attributes& attributes, const ov::Tensor& packed);
};

/// `inputs` are those of PagedAttention, of any form, and `batch` the tables among them. Throws
/// std::invalid_argument that names the input, what it says and what is allowed. After it, no index
/// leads out of a tensor: shapes fit the attributes, every sequence has at least one new token and
/// enough blocks for its context, block ids are in the pool, begins ascend, rotation entries ascend
/// and their deltas are rows of the table.
void check_paged_attention(const PagedAttention::Attributes& attributes, const NativeInputs& inputs,
                           const BatchTables& batch);

}  // namespace pagewheel
