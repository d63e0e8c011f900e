#include "runtime/input_tensor.hpp"

namespace pagewheel {

InputTensor::InputTensor(const ov::CompiledModel& model, const std::string& name) {
    for (size_t i = 0; i < model.inputs().size() && !m_exists; ++i) {
        m_exists = model.inputs()[i].get_names().count(name) != 0;
        m_index = i;
    }
}

void InputTensor::reshape(ov::InferRequest& request, const ov::element::Type& type, size_t rank,
                          size_t rows, size_t columns) {
    const bool is_new = !m_tensor;
    if (is_new) m_shape.resize(rank);
    const bool same = (rank < 1 || m_shape[0] == rows) && (rank < 2 || m_shape[1] == columns);
    if (!is_new && same) return;
    if (rank > 1) m_shape[1] = columns;
    const size_t size = rank == 0 ? 1 : rank == 1 ? rows : rows * columns;
    const bool grows = is_new || size > m_capacity;
    if (grows) {  // with room for more than that: it will grow again
        if (rank > 0) m_shape[0] = 2 * rows;
        m_tensor = ov::Tensor(type, m_shape);
        m_capacity = m_tensor.get_size();
    }
    if (rank > 0) m_shape[0] = rows;
    // It keeps its memory when it shrinks and grows back, and stays bound: binding allocates.
    m_tensor.set_shape(m_shape);
    m_data = m_tensor.data();
    if (grows && m_exists) request.set_input_tensor(m_index, m_tensor);
}

}  // namespace pagewheel
