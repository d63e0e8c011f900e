#include "pagewheel/streamer.hpp"

#include <pybind11/stl.h>

#include "bindings.hpp"
#include "conversions.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel::python {
namespace {

/// Calls write() and end() of a Python subclass.
class PyStreamer : public StreamerBase, public py::trampoline_self_life_support {
public:
    StreamingStatus write(const std::vector<int64_t>& tokens) override {
        const Locked locked;
        const py::function method = find("write");
        return to_streaming_status(call(method, tokens));
    }
    void end() override {
        const Locked locked;
        call(find("end"));
    }

private:
    py::function find(const char* name) const {
        const py::function method = py::get_override(static_cast<const StreamerBase*>(this), name);
        if (!method) throw py::type_error(std::string("a StreamerBase must define ") + name + "()");
        return method;
    }
};

std::vector<int64_t> one_or_more(const py::object& token) {
    if (py::isinstance<py::int_>(token)) return {token.cast<int64_t>()};
    return token.cast<std::vector<int64_t>>();
}

}  // namespace

void bind_streamer(py::module_& module) {
    py::enum_<StreamingStatus>(
        module, "StreamingStatus",
        "What a streamer answers: go on; end and keep what there is; end and drop; STOP, of which "
        "the finish reason is TOOL_CALL.")
        .value("RUNNING", StreamingStatus::RUNNING)
        .value("STOP", StreamingStatus::STOP)
        .value("CANCEL", StreamingStatus::CANCEL)
        .value("TOOL_CALL_STOP", StreamingStatus::TOOL_CALL_STOP);

    py::class_<StreamerBase, PyStreamer, py::smart_holder>(
        module, "StreamerBase", R"(Receives tokens as they are generated. Subclass it and define
write(self, token: list[int]) -> StreamingStatus | bool | None and end(self). They run on the
thread that called generate() and may call everything. An exception raised from them cancels the request and
reaches the caller of generate().)")
        .def(py::init<>())
        .def(
            "write",
            [](StreamerBase& s, const py::object& token) {
                const auto tokens = one_or_more(token);
                const Unlocked unlocked;  // it decodes, and may be at work elsewhere
                return s.write(tokens);
            },
            py::arg("token"), "Takes new tokens, at least one; its answer says whether to go on.")
        .def("end", &StreamerBase::end, py::call_guard<Unlocked>(),
             "Called after the last token, unless an exception ended the request.");

    py::class_<TextStreamer, StreamerBase, py::smart_holder>(
        module, "TextStreamer",
        R"(Turns tokens into text and hands it to a callback, never half a character.

It serves one generate() at a time, and any number in turn: RuntimeError while another thread, or its own
callback, has it.)")
        .def(py::init([](const Tokenizer& tokenizer, const py::function& callback,
                         const py::dict& detokenization_params) {
                 bool skip_special_tokens = true;
                 for (const auto& [key, value] : detokenization_params) {
                     if (key.cast<std::string>() != "skip_special_tokens")
                         throw InvalidArgument(
                             "unknown detokenization parameter '" + key.cast<std::string>() +
                                 "'; known is skip_special_tokens",
                             ErrorCode::invalid_parameter, key.cast<std::string>());
                     skip_special_tokens = value.cast<bool>();
                 }
                 return std::make_shared<TextStreamer>(tokenizer, to_text_callback(callback),
                                                       skip_special_tokens);
             }),
             py::arg("tokenizer"), py::arg("callback"),
             py::arg("detokenization_params") = py::dict());

    py::class_<StreamedOutput>(module, "StreamedOutput", "What is new of one sequence.")
        .def_readonly("prompt", &StreamedOutput::prompt, "Index of its prompt in the call.")
        .def_readonly("sequence", &StreamedOutput::sequence, "Index among those of its prompt.")
        .def_readonly("output", &StreamedOutput::output,
                      "As GenerationHandle.read(with_text=True) gives it: tokens, "
                      "log-probabilities, text, and a finish reason once. With echo the prompt is "
                      "not in it.");

    py::class_<OutputStreamer, StreamerBase, py::smart_holder>(
        module, "OutputStreamer",
        R"(Hands the new output of every sequence to callback(output: StreamedOutput) -> StreamingStatus | bool | None.

It takes several prompts and num_return_sequences, too. After each step it is called for each sequence that has new output. What
the callback answers is for all sequences of that prompt.)")
        .def(py::init([](const py::function& callback) {
                 return std::make_shared<OutputStreamer>(
                     [shared = share(callback)](const StreamedOutput& output) {
                         const Locked locked;
                         return to_streaming_status(call(*shared, output));
                     });
             }),
             py::arg("callback"));
}

}  // namespace pagewheel::python
