// Many handles wake one event loop, without the interpreter's lock.
#include <pybind11/stl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "interpreter_lock.hpp"
#include "pagewheel/generation_handle.hpp"

namespace pagewheel::python {

namespace {

using WithoutLock = py::call_guard<Unlocked>;

/// Shared with the callbacks of handles, which may outlive the notifier.
class PipeNotifier {
public:
    explicit PipeNotifier(int descriptor) : m_descriptor(descriptor) {}

    /// A byte says that there are numbers; take() takes all that came since.
    void notify(uint64_t number) {
        const std::lock_guard lock(m_mutex);
        m_numbers.push_back(number);
        if (m_is_signalled || m_descriptor < 0) return;
        const char byte = 0;
        long written = 0;
        while ((written = long(write(m_descriptor, &byte, 1))) < 0 && errno == EINTR) {
        }
        m_is_signalled = written == 1;  // else the next one tries again
    }
    std::vector<uint64_t> take() {
        const std::lock_guard lock(m_mutex);
        m_is_signalled = false;
        return std::exchange(m_numbers, {});
    }
    void close() {
        const std::lock_guard lock(m_mutex);
        m_descriptor = -1;
    }

private:
    std::mutex m_mutex;
    std::vector<uint64_t> m_numbers;
    bool m_is_signalled = false;  // a byte was written since they were taken
    int m_descriptor;
};

void notify_once(const std::shared_ptr<PipeNotifier>& notifier, GenerationHandle& handle,
                 uint64_t number, bool at_end) {
    using Until = GenerationHandle::Until;
    handle.notify_once([notifier, number] { notifier->notify(number); },
                       at_end ? Until::END : Until::OUTPUT);
}

}  // namespace

void bind_pipe_notifier(py::module_& module) {
    py::class_<PipeNotifier, std::shared_ptr<PipeNotifier>>(
        module, "PipeNotifier",
        "Tells an event loop which of many requests have new output: with one wake-up for all of a "
        "step, "
        "and the thread that steps waits for no Python code. It writes a byte to the descriptor, "
        "which must not block, when there are numbers for take(). From any thread.")
        .def(py::init<int>(), py::arg("descriptor"))
        .def("notify_once", &notify_once, py::arg("handle"), py::arg("number"),
             py::arg("at_end") = false, WithoutLock(),
             "Has the handle's request notify with this number, once: when there is something to "
             "read or it is over; with at_end only when it is over.")
        .def("take", &PipeNotifier::take, WithoutLock(),
             "The numbers since the last call. To be called after the descriptor was read.")
        .def("close", &PipeNotifier::close, WithoutLock(),
             "Nothing is written any more: the descriptor may be closed.");
}

}  // namespace pagewheel::python
