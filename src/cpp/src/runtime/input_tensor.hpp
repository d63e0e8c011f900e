// One input of the model, filled anew with every step.
#pragma once

#include <cstddef>
#include <string>

#include "openvino/runtime/compiled_model.hpp"
#include "openvino/runtime/infer_request.hpp"

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

}  // namespace pagewheel
