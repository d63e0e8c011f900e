// Python values as the C++ API wants them. All of it needs the GIL.
#pragma once

#include <pybind11/pybind11.h>

#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "interpreter_lock.hpp"
#include "openvino/core/any.hpp"
#include "pagewheel/generation_config.hpp"
#include "pagewheel/scheduler_config.hpp"
#include "pagewheel/streamer.hpp"
#include "pagewheel/tokenizer.hpp"

namespace pagewheel::python {

namespace py = pybind11;

std::string to_json(const py::handle& value);
/// Generation parameters as GenerationConfig::update_from_json() takes them: infinity, which JSON
/// does not have, as "inf", and NaN as "nan".
std::string to_config_json(const py::dict& parameters);
py::object from_json(const std::string& json);

/// UTF-8 of a str. Raises UnicodeEncodeError for one with lone surrogates.
std::string to_text(const py::handle& text);
std::vector<std::string> to_texts(const py::handle& texts);

/// The type of a value, for messages.
std::string type_of(const py::handle& value);

/// A list, a tuple or the like, but no text.
bool is_sequence(const py::handle& value);

/// The folder for a model folder, a .gguf file, or whatever pagewheel.convert can turn into one.
std::filesystem::path resolve_model(const py::object& path);
/// Opens a tokenizer, which may be alone in a folder.
std::filesystem::path resolve_tokenizer(const py::object& path);
/// Opens the model of a pipeline with `properties`: "enable_save_ov_model" leaves the folder's
/// files beside a .gguf file.
std::filesystem::path resolve_model(const py::object& path, const py::dict& properties);

/// OpenVINO's properties, and the "scheduler_config" taken out from among them.
std::pair<ov::AnyMap, SchedulerConfig> to_properties(const py::dict& properties,
                                                     const SchedulerConfig& default_config = {});

/// kwargs go before properties.
py::dict merged_properties(const py::dict& properties, const py::kwargs& kwargs);

/// Token ids from openvino.Tensor, numpy array or nested lists: one row per sequence.
std::vector<std::vector<int64_t>> to_token_rows(const py::handle& ids);
/// The token ids of one sequence.
std::vector<int64_t> to_tokens(const py::handle& ids);
/// A copy as openvino.Tensor.
py::object to_openvino_tensor(const ov::Tensor& tensor);
/// i64, copied, from openvino.Tensor, numpy array or nested lists.
ov::Tensor to_tensor(const py::handle& values);
/// u8, copied, from openvino.Tensor, numpy array or bytes: what a file would hold.
ov::Tensor to_byte_tensor(const py::handle& bytes);

/// A callable for C++ to keep: copied, called and destroyed by threads that do not hold the
/// interpreter's lock. Call it with the lock.
using SharedCallable = std::shared_ptr<const py::object>;
SharedCallable share(py::object callable);

/// Sets what the dict names, or throws and leaves the config as it was.
void update_config(GenerationConfig& config, const py::dict& parameters);
/// None, a GenerationConfig or a dict, with `overrides` on top. None means `base`.
GenerationConfig to_config(const py::handle& config, const GenerationConfig& base,
                           const py::dict& overrides);
/// None, a callable that gets text, or a StreamerBase.
StreamerVariant to_streamer(const py::object& streamer);
TextStreamer::Callback to_text_callback(py::object callable);
StreamingStatus to_streaming_status(const py::handle& answer);

/// The tokenizer of a model's path, with OpenVINO's properties; it renders with Jinja2.
Tokenizer make_tokenizer(const py::object& path, const py::dict& properties);

/// Renders with Jinja2 from now on, within the limits of pagewheel.chat_template.
void use_jinja(Tokenizer tokenizer);

/// Calls `work`, which is interrupted if it gives false. Ctrl-C is not the request's fault: `work`
/// is asked once more, and the program is told when it gets to it.
template <class Work>
void retry_interrupted(const char* what, const Work& work) {
    if (work()) return;
    const bool is_done = work();
    PyErr_SetInterrupt();
    if (!is_done) throw std::runtime_error(std::string(what) + " was interrupted twice");
}

/// Calls a callback whose exceptions have nowhere to go: sys.unraisablehook gets them, and Ctrl-C
/// the program. False if there was one.
template <class... Arguments>
bool call_from_engine(const char* who, const py::object& callable, const Arguments&... arguments) {
    try {
        call(callable, arguments...);
        return true;
    } catch (py::error_already_set& error) {
        if (error.matches(PyExc_KeyboardInterrupt))
            PyErr_SetInterrupt();
        else
            error.discard_as_unraisable(who);
        return false;
    }
}

/// A hook for set_step_hook(): Ctrl-C ends the call with KeyboardInterrupt.
void raise_pending_signals();

}  // namespace pagewheel::python
