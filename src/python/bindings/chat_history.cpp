#include "pagewheel/chat_history.hpp"

#include "bindings.hpp"
#include "conversions.hpp"

namespace pagewheel::python {

void bind_chat_history(py::module_& module) {
    using C = ChatHistory;
    py::class_<C>(module, "ChatHistory",
                  R"(The messages of a conversation, with tools and extra context
for the chat template, which says what messages must have. Keys keep their order.)")
        .def(py::init<>())
        .def(py::init([](const py::list& messages) { return C(to_json(messages)); }),
             py::arg("messages"))
        .def(
            "append", [](C& c, const py::dict& message) { c.append_json(to_json(message)); },
            py::arg("message"), "Adds a message, a dict.")
        .def(
            "pop", [](C& c) { return from_json(c.pop()); }, "Removes and returns the last message.")
        .def("clear", &C::clear, "Removes all messages.")
        .def(
            "get_messages", [](const C& c) { return from_json(c.messages_json()); }, "A deep copy.")
        .def(
            "set_messages", [](C& c, const py::list& m) { c.set_messages_json(to_json(m)); },
            py::arg("messages"), "Puts these messages in the place of all there are.")
        .def(
            "get_tools", [](const C& c) { return from_json(c.tools_json()); }, "A deep copy.")
        .def(
            "set_tools", [](C& c, const py::list& tools) { c.set_tools_json(to_json(tools)); },
            py::arg("tools"), "What the chat template sees as `tools`.")
        .def(
            "get_extra_context", [](const C& c) { return from_json(c.extra_context_json()); },
            "A deep copy.")
        .def(
            "set_extra_context",
            [](C& c, const py::dict& context) { c.set_extra_context_json(to_json(context)); },
            py::arg("extra_context"), "More variables for the chat template, by name.")
        .def("__len__", &C::size)
        .def("__bool__", [](const C& c) { return !c.empty(); });
}

}  // namespace pagewheel::python
