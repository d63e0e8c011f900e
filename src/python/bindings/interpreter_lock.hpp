// The interpreter's lock (GIL), for threads that may outlive the interpreter.
#pragma once

#include <cxxabi.h>
#include <pybind11/pybind11.h>
#include <unistd.h>

#include <utility>

namespace pagewheel::python {

/// `work` asks for the lock or runs Python. An interpreter that is ending unwinds the threads which
/// do (before Python 3.14): through destructors that let nothing pass, and past Python objects that
/// may not be dropped without the lock. Such a thread waits here for the end of the process
/// instead.
template <class Work>
auto unless_ending(Work&& work) {
    try {
        return work();
    } catch (abi::__forced_unwind&) {
        for (;;) pause();  // to leave the block would end the process
    }
}

/// Lets the lock go, and takes it again in the end.
class Unlocked {
public:
    Unlocked() : m_state(PyEval_SaveThread()) {}
    ~Unlocked() {
        unless_ending([&] { PyEval_RestoreThread(m_state); });
    }
    Unlocked(const Unlocked&) = delete;
    Unlocked& operator=(const Unlocked&) = delete;

private:
    PyThreadState* const m_state;
};

/// Holds the lock, on any thread.
class Locked {
public:
    Locked() : m_state(unless_ending([] { return PyGILState_Ensure(); })) {}
    ~Locked() { PyGILState_Release(m_state); }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;

private:
    const PyGILState_STATE m_state;
};

/// Calls Python code, with the lock. Throws pybind11::error_already_set.
inline pybind11::object call_with(const pybind11::handle& callable,
                                  const pybind11::tuple& arguments,
                                  const pybind11::dict& named = {}) {
    PyObject* const result =
        unless_ending([&] { return PyObject_Call(callable.ptr(), arguments.ptr(), named.ptr()); });
    if (!result) throw pybind11::error_already_set();
    return pybind11::reinterpret_steal<pybind11::object>(result);
}

template <class... Arguments>
pybind11::object call(const pybind11::handle& callable, Arguments&&... arguments) {
    return call_with(callable, pybind11::make_tuple(std::forward<Arguments>(arguments)...));
}

}  // namespace pagewheel::python
