// Many handles wake one event loop, without the interpreter's lock.
#include <pybind11/stl.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#ifdef _WIN32
#include <io.h>
#else
#include <unistd.h>
#endif

#include "bindings.hpp"
#include "interpreter_lock.hpp"
#include "pagewheel/generation_handle.hpp"

namespace pagewheel::python {

namespace {

using WithoutLock = py::call_guard<Unlocked>;

/// Shared with the callbacks of handles, which may outlive the bell.
class Bell {
public:
    explicit Bell(int descriptor) : m_descriptor(descriptor) {}

    /// A byte says that there are numbers; rung() takes all that came since.
    void ring(uint64_t number) {
        const std::lock_guard lock(m_mutex);
        m_rung.push_back(number);
        if (m_is_signalled || m_descriptor < 0) return;
        const char byte = 0;
        long written = 0;
        while ((written = long(write(m_descriptor, &byte, 1))) < 0 && errno == EINTR) {
        }
        m_is_signalled = written == 1;  // else the next one tries again
    }
    std::vector<uint64_t> rung() {
        const std::lock_guard lock(m_mutex);
        m_is_signalled = false;
        return std::exchange(m_rung, {});
    }
    void close() {
        const std::lock_guard lock(m_mutex);
        m_descriptor = -1;
    }

private:
    std::mutex m_mutex;
    std::vector<uint64_t> m_rung;
    bool m_is_signalled = false;  // a byte was written since they were taken
    int m_descriptor;
};

void expect(const std::shared_ptr<Bell>& bell, GenerationHandle& handle, uint64_t number,
            bool at_end) {
    using Until = GenerationHandle::Until;
    handle.notify_once([bell, number] { bell->ring(number); }, at_end ? Until::END : Until::OUTPUT);
}

}  // namespace

void bind_bell(py::module_& module) {
    py::class_<Bell, std::shared_ptr<Bell>>(
        module, "Bell",
        "Tells an event loop which of many requests have news: with one wake-up for all of a step, "
        "and the thread that steps waits for no Python code. It writes a byte to the descriptor, "
        "which must not block, when there are numbers for rung(). From any thread.")
        .def(py::init<int>(), py::arg("descriptor"))
        .def("expect", &expect, py::arg("handle"), py::arg("number"), py::arg("at_end") = false,
             WithoutLock(),
             "Has the handle's request ring with this number, once: when there is something to "
             "read or it is over; with at_end only when it is over.")
        .def("rung", &Bell::rung, WithoutLock(),
             "The numbers since the last call. To be called after the descriptor was read.")
        .def("close", &Bell::close, WithoutLock(),
             "Nothing is written any more: the descriptor may be closed.");
}

}  // namespace pagewheel::python
