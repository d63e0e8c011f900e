#include "logits_processor.hpp"

#include <pybind11/numpy.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "conversions.hpp"

namespace pagewheel::python {
namespace {

using Values = std::shared_ptr<std::vector<float>>;

/// An array over the values, which live as long as it does, or whatever views it.
py::array_t<float> view_of(const Values& values) {
    const py::capsule owner(new Values(values),
                            [](void* shared) { delete static_cast<Values*>(shared); });
    return py::array_t<float>(py::ssize_t(values->size()), values->data(), owner);
}

/// Calls f(token_ids, logits), on the thread that steps.
///
/// The array that f gets is neither the engine's memory nor a new one each time: it is over values
/// of this processor, to which the row is copied, and from which it is copied back. Where f keeps
/// the array, or a tensor on it, these values stay with it, and the next call has others.
class PythonProcessor final : public LogitsProcessor {
public:
    explicit PythonProcessor(SharedCallable callable) : m_callable(std::move(callable)) {}

    const py::object& callable() const { return *m_callable; }

    void process(const LogitsRow& row, const TokenHistory& history) override {
        const Locked locked;
        retry_interrupted("it", [&] { return ask(row, history); });
    }

    std::unique_ptr<LogitsProcessor> fork() const override {
        const Locked locked;
        if (!py::hasattr(*m_callable, "fork")) return std::make_unique<PythonProcessor>(m_callable);
        try {
            py::object forked = call(m_callable->attr("fork"));
            if (!PyCallable_Check(forked.ptr()))
                throw std::runtime_error("fork() is to return a callable, got " + type_of(forked));
            return std::make_unique<PythonProcessor>(share(std::move(forked)));
        } catch (const py::error_already_set& error) {  // not to outlive the lock
            throw std::runtime_error(error.what());
        }
    }

private:
    /// False, and the row as it was, if the call was interrupted.
    bool ask(const LogitsRow& row, const TokenHistory& history) {
        copy_in(row);
        try {
            const py::object answer = answer_to(history);
            if (answer.is_none())
                copy_out(m_values->data(), row);
            else
                take(answer, row);
            return true;
        } catch (const py::error_already_set& error) {
            if (error.matches(PyExc_KeyboardInterrupt)) return false;
            throw std::runtime_error(error.what());
        }
    }

    py::object answer_to(const TokenHistory& history) const {
        const py::array_t<int64_t> token_ids(py::ssize_t(history.tokens.size()),
                                             history.tokens.data());
        return call(*m_callable, token_ids, view_of(m_values));
    }

    void copy_in(const LogitsRow& row) {
        const bool is_kept = m_values && m_values.use_count() > 1;
        if (is_kept || !m_values) m_values = std::make_shared<std::vector<float>>();
        m_values->resize(row.size);
        const auto value = [&](float logit) { return float(double(logit) - row.offset); };
        if (row.offset == 0)
            std::copy_n(row.logits, row.size, m_values->data());
        else
            std::transform(row.logits, row.logits + row.size, m_values->data(), value);
    }

    static void copy_out(const float* values, const LogitsRow& row) {
        const auto logit = [&](float value) { return float(double(value) + row.offset); };
        if (row.offset == 0)
            std::copy_n(values, row.size, row.logits);
        else
            std::transform(values, values + row.size, row.logits, logit);
    }

    static void take(const py::object& answer, const LogitsRow& row) {
        using Array = py::array_t<float, py::array::c_style | py::array::forcecast>;
        const std::string expected =
            "it is to return None or an array of " + std::to_string(row.size) + " logits, got ";
        const Array array = Array::ensure(answer);
        if (!array) throw std::runtime_error(expected + type_of(answer));
        if (array.ndim() != 1 || size_t(array.size()) != row.size)
            throw std::runtime_error(expected + "shape " +
                                     std::string(py::str(array.attr("shape"))));
        copy_out(array.data(), row);
    }

    SharedCallable m_callable;
    Values m_values;
};

}  // namespace

void set_logits_processors(GenerationConfig& config, const py::object& callables) {
    std::vector<std::shared_ptr<const LogitsProcessor>> processors;
    if (!callables.is_none() && !is_sequence(callables))
        throw py::type_error("logits_processors must be a list of callables, got " +
                             type_of(callables));
    for (const py::handle callable : callables.is_none() ? py::list() : callables) {
        if (!PyCallable_Check(callable.ptr()))
            throw py::type_error("logits_processors must hold callables, got " + type_of(callable));
        processors.push_back(
            std::make_shared<PythonProcessor>(share(py::reinterpret_borrow<py::object>(callable))));
    }
    config.logits_processors = std::move(processors);
}

py::list get_logits_processors(const GenerationConfig& config) {
    py::list callables;
    for (const auto& processor : config.logits_processors)
        if (const auto* own = dynamic_cast<const PythonProcessor*>(processor.get()))
            callables.append(own->callable());
    return callables;
}

}  // namespace pagewheel::python
