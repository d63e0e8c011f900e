#include "conversions.hpp"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cmath>
#include <cstring>
#include <optional>

#include "logits_processor.hpp"
#include "pagewheel/errors.hpp"
#include "pagewheel/parsers.hpp"
#include "pagewheel/properties.hpp"

namespace pagewheel::python {
namespace {

using IntArray = py::array_t<int64_t, py::array::c_style | py::array::forcecast>;

/// openvino.Tensor shows its memory as .data; everything else is numpy's business.
IntArray to_int_array(const py::handle& values) {
    const bool is_tensor = py::hasattr(values, "get_element_type") && py::hasattr(values, "data");
    py::object source =
        is_tensor ? values.attr("data") : py::reinterpret_borrow<py::object>(values);
    const py::array array = py::array::ensure(source);
    if (!array ||
        (array.size() > 0 && array.dtype().kind() != 'i' && array.dtype().kind() != 'u')) {
        PyErr_Clear();
        throw py::type_error(
            "token ids must be integers in an openvino.Tensor, numpy array or list, got " +
            type_of(values));
    }
    return IntArray::ensure(array);
}

/// Takes its bytes: a path need not be UTF-8.
std::filesystem::path to_path(const py::handle& path) {
    return py::module_::import("os").attr("fsencode")(path).cast<std::string>();
}

/// openvino_genai's property: paths of libraries.
ov::Any to_libraries(const py::handle& paths) {
    std::vector<std::filesystem::path> libraries;
    if (!is_sequence(paths)) throw py::type_error("extensions must be a list of paths");
    for (const py::handle& path : paths) libraries.push_back(to_path(path));
    return libraries;
}

ov::Any to_any(const std::string& key, const py::handle& value) {
    if (key == "extensions") return to_libraries(value);
    if (py::isinstance<DraftModel>(value)) return value.cast<DraftModel>();
    if (py::isinstance<py::bool_>(value)) return value.cast<bool>();
    if (py::isinstance<py::int_>(value)) {
        int overflow = 0;
        const long long integer = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
        if (overflow != 0)
            throw InvalidArgument("property '" + key + "' is " + std::string(py::str(value)) +
                                      "; allowed are integers of 64 bits",
                                  ErrorCode::invalid_parameter, key);
        return int64_t(integer);
    }
    if (py::isinstance<py::float_>(value)) return value.cast<double>();
    if (py::isinstance<py::str>(value)) return value.cast<std::string>();
    // openvino.Type and openvino's enums, which are another module's classes: their text is what
    // the plugins parse.
    if (py::hasattr(value, "get_type_name"))
        return value.attr("get_type_name")().cast<std::string>();
    if (py::hasattr(value, "name")) return value.attr("name").cast<std::string>();
    throw py::type_error("property '" + key + "' has type " + type_of(value) +
                         "; allowed are bool, int, float, str and openvino's types and enums");
}

bool is_numpy_scalar(const py::handle& value) {
    return py::isinstance(value, py::module_::import("numpy").attr("generic"));
}

/// Turns numpy's scalars into Python's, but for long doubles, which are none.
py::object plain_scalar(const py::handle& scalar) {
    const py::object plain = scalar.attr("item")();
    return is_numpy_scalar(plain) ? py::float_(plain) : plain;
}

/// JSON has no infinities and no NaN: they become texts.
py::object with_json(py::object value) {
    const bool has_json = !py::isinstance<py::float_>(value) || std::isfinite(value.cast<double>());
    return has_json ? value : py::object(py::str(value));
}

/// json takes no keys of numpy's.
py::dict with_text_keys(const py::handle& dict) {
    py::dict result;
    for (const auto& [key, value] : py::reinterpret_borrow<py::dict>(dict)) {
        const py::object plain = is_numpy_scalar(value) ? plain_scalar(value)
                                                        : py::reinterpret_borrow<py::object>(value);
        result[py::str(key)] = with_json(plain);
    }
    return result;
}

/// JSON of `value`, which errors call `what`. Sets are arrays, numpy's scalars numbers, enums their
/// names; for anything else json asks here in vain.
std::string dump(const py::handle& value, const std::string& what) {
    const py::cpp_function convert([what](const py::object& other) -> py::object {
        if (PyAnySet_Check(other.ptr())) return py::list(other);
        if (is_numpy_scalar(other)) return plain_scalar(other);
        if (py::isinstance<StopCriteria>(other)) return other.attr("name");
        throw py::type_error(what + " cannot be made of " + std::string(py::repr(other)));
    });
    try {
        return py::module_::import("json")
            .attr("dumps")(value, py::arg("default") = convert)
            .cast<std::string>();
    } catch (const py::error_already_set& error) {
        if (!error.matches(PyExc_RecursionError)) throw;
        throw py::value_error(what + " has lists and dicts too deep in each other");
    }
}

std::optional<StructuredOutputConfig> to_optional_structured_output(const py::object& value) {
    if (value.is_none()) return std::nullopt;
    if (!py::isinstance<StructuredOutputConfig>(value))
        throw py::type_error("structured_output_config is " + std::string(py::repr(value)) +
                             "; allowed: StructuredOutputConfig | None");
    return value.cast<StructuredOutputConfig>();
}

/// The arguments without parameters that stand for what is not there yet and ask for nothing.
/// Raises NotImplementedError for one that asks.
py::dict known(const py::dict& parameters) {
    return py::module_::import("pagewheel.not_yet").attr("known")(parameters);
}

}  // namespace

std::string to_json(const py::handle& value) {
    return dump(value, "JSON");
}

std::string to_config_json(const py::dict& parameters) {
    std::string json;
    for (const auto& [key, value] : parameters) {
        const py::str name(key);
        const py::object plain = is_numpy_scalar(value) ? plain_scalar(value)
                                 : py::isinstance<py::dict>(value)
                                     ? with_text_keys(value)
                                     : py::reinterpret_borrow<py::object>(value);
        json += (json.empty() ? "{" : ", ") + to_json(name) + ": " +
                dump(with_json(plain), "generation parameter " + std::string(py::repr(name)));
    }
    return json.empty() ? "{}" : json + "}";
}

py::object from_json(const std::string& json) {
    return py::module_::import("json").attr("loads")(json);
}

std::string to_text(const py::handle& text) {
    Py_ssize_t size = 0;
    const char* bytes = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
    if (!bytes) throw py::error_already_set();
    return {bytes, size_t(size)};
}

std::vector<std::string> to_texts(const py::handle& texts) {
    std::vector<std::string> result;
    for (const py::handle& text : texts) {
        if (!py::isinstance<py::str>(text))
            throw py::type_error("a list of prompts must hold str only, got " + type_of(text));
        result.push_back(to_text(text));
    }
    return result;
}

std::string type_of(const py::handle& value) {
    return py::str(py::type::of(value));
}

bool is_sequence(const py::handle& value) {
    return PySequence_Check(value.ptr()) != 0 && !py::isinstance<py::str>(value) &&
           !py::isinstance<py::bytes>(value);
}

std::filesystem::path resolve_model(const py::object& path) {
    return resolve_model(path, py::dict());
}

std::filesystem::path resolve_tokenizer(const py::object& path) {
    const std::filesystem::path given = to_path(path);
    const bool is_there = std::filesystem::exists(given / "openvino_tokenizer.xml");
    return is_there ? given : resolve_model(path);
}

std::filesystem::path resolve_model(const py::object& path, const py::dict& properties) {
    const std::filesystem::path given = to_path(path);
    if (std::filesystem::exists(given / "openvino_model.xml")) return given;
    const auto resolve = py::module_::import("pagewheel.convert").attr("resolve_model");
    const py::object saves = properties.attr("get")("enable_save_ov_model", py::bool_(false));
    return to_path(resolve(path, py::arg("save_beside") = saves));
}

std::pair<ov::AnyMap, SchedulerConfig> to_properties(const py::dict& properties,
                                                     const SchedulerConfig& default_config) {
    std::pair<ov::AnyMap, SchedulerConfig> result{{}, default_config};
    for (const auto& [key_object, value] : known(properties)) {
        const auto key = key_object.cast<std::string>();
        if (key == "scheduler_config")
            result.second = value.cast<SchedulerConfig>();
        else
            result.first[key] = to_any(key, value);
    }
    return result;
}

py::dict merged_properties(const py::dict& properties, const py::kwargs& kwargs) {
    py::dict merged = properties.attr("copy")();
    merged.attr("update")(kwargs);
    return merged;
}

std::vector<std::vector<int64_t>> to_token_rows(const py::handle& ids) {
    const bool is_list = py::isinstance<py::list>(ids) || py::isinstance<py::tuple>(ids);
    const bool is_ragged =
        is_list && py::len(ids) > 0 && !py::isinstance<py::int_>(ids[py::int_(0)]);
    std::vector<std::vector<int64_t>> rows;
    if (is_ragged) {
        for (const py::handle& row : ids) rows.push_back(to_tokens(row));
        return rows;
    }
    const IntArray array = to_int_array(ids);
    if (array.ndim() != 1 && array.ndim() != 2)
        throw py::value_error("token ids have " + std::to_string(array.ndim()) +
                              " dimensions; expected [tokens] or [batch, tokens]");
    const size_t width = size_t(array.shape(array.ndim() - 1));
    const size_t height = array.ndim() == 2 ? size_t(array.shape(0)) : 1;
    for (size_t i = 0; i < height; ++i)
        rows.emplace_back(array.data() + i * width, array.data() + (i + 1) * width);
    return rows;
}

std::vector<int64_t> to_tokens(const py::handle& ids) {
    const IntArray array = to_int_array(ids);
    if (array.ndim() != 1 && !(array.ndim() == 2 && array.shape(0) == 1))
        throw py::value_error("token ids of one sequence have shape " +
                              std::string(py::str(array.attr("shape"))) +
                              "; expected [tokens] or [1, tokens]");
    return {array.data(), array.data() + array.size()};
}

py::object to_openvino_tensor(const ov::Tensor& tensor) {
    const auto& shape = tensor.get_shape();
    const py::array_t<int64_t> array(std::vector<py::ssize_t>(shape.begin(), shape.end()),
                                     tensor.data<const int64_t>());
    return py::module_::import("openvino").attr("Tensor")(array);
}

ov::Tensor to_tensor(const py::handle& values) {
    const IntArray array = to_int_array(values);
    ov::Tensor tensor(ov::element::i64, ov::Shape(array.shape(), array.shape() + array.ndim()));
    std::copy(array.data(), array.data() + array.size(), tensor.data<int64_t>());
    return tensor;
}

ov::Tensor to_byte_tensor(const py::handle& bytes) {
    const bool is_tensor = py::hasattr(bytes, "get_element_type") && py::hasattr(bytes, "data");
    const py::module_ numpy = py::module_::import("numpy");
    const py::object source = is_tensor ? py::object(bytes.attr("data"))
                              : py::isinstance<py::bytes>(bytes)
                                  ? numpy.attr("frombuffer")(bytes, py::arg("dtype") = "u1")
                                  : py::reinterpret_borrow<py::object>(bytes);
    const py::array array = numpy.attr("ascontiguousarray")(source);
    const size_t size = size_t(array.nbytes());
    ov::Tensor tensor(ov::element::u8, {size});
    std::memcpy(tensor.data(), array.data(), size);
    return tensor;
}

SharedCallable share(py::object callable) {
    return {new py::object(std::move(callable)), [](const py::object* object) {
                if (!Py_IsInitialized()) return;  // it went with the interpreter
                const Locked locked;
                delete object;
            }};
}

void update_config(GenerationConfig& config, const py::dict& parameters) {
    if (parameters.empty()) return;
    GenerationConfig updated = config;
    const py::dict in_json = known(parameters).attr("copy")();
    if (in_json.contains("parsers")) {
        const py::object parsers = in_json.attr("pop")("parsers");
        updated.parsers = {};
        if (!parsers.is_none())
            updated.parsers = parsers.cast<std::vector<std::shared_ptr<Parser>>>();
    }
    if (in_json.contains("structured_output_config"))
        updated.structured_output_config =
            to_optional_structured_output(in_json.attr("pop")("structured_output_config"));
    if (in_json.contains("logits_processors"))
        set_logits_processors(updated, in_json.attr("pop")("logits_processors"));
    updated.update_from_json(to_config_json(in_json));
    config = std::move(updated);
}

GenerationConfig to_config(const py::handle& config, const GenerationConfig& base,
                           const py::dict& overrides) {
    GenerationConfig result = base;
    if (py::isinstance<GenerationConfig>(config)) {
        // pagewheel.openvino_genai's has parameters besides.
        if (py::hasattr(config, "_refuse_missing")) config.attr("_refuse_missing")();
        result = config.cast<GenerationConfig>();
    } else if (py::isinstance<py::dict>(config))
        update_config(result, config.cast<py::dict>());
    else if (!config.is_none())
        throw py::type_error("generation_config must be a GenerationConfig or a dict, got " +
                             type_of(config));
    update_config(result, overrides);
    return result;
}

StreamingStatus to_streaming_status(const py::handle& answer) {
    if (answer.is_none()) return StreamingStatus::RUNNING;
    if (py::isinstance<StreamingStatus>(answer)) return answer.cast<StreamingStatus>();
    if (py::isinstance<py::int_>(answer)) {  // bool is one: True means stop
        int overflow = 0;
        const long status = PyLong_AsLongAndOverflow(answer.ptr(), &overflow);
        if (overflow == 0 && status >= 0 && status <= 3) return StreamingStatus(status);
    }
    throw py::type_error("a streamer must return None, bool or StreamingStatus, got " +
                         std::string(py::repr(answer)));
}

StreamerVariant to_streamer(const py::object& streamer) {
    if (streamer.is_none()) return {};
    if (py::isinstance<StreamerBase>(streamer))
        return streamer.cast<std::shared_ptr<StreamerBase>>();
    if (!PyCallable_Check(streamer.ptr()))
        throw py::type_error("streamer must be None, a callable or a StreamerBase, got " +
                             type_of(streamer));
    return to_text_callback(streamer);
}

TextStreamer::Callback to_text_callback(py::object callable) {
    return [shared = share(std::move(callable))](const std::string& text) {
        const Locked locked;
        return to_streaming_status(call(*shared, text));
    };
}

void use_jinja(Tokenizer tokenizer) {
    tokenizer.set_chat_template_renderer([](const ChatTemplateInputs& inputs) {
        const Locked locked;
        const auto render = py::module_::import("pagewheel.chat_template").attr("render");
        const py::object tools = from_json(inputs.tools_json);
        return call_with(render,
                         py::make_tuple(inputs.chat_template, from_json(inputs.messages_json)),
                         py::dict(py::arg("add_generation_prompt") = inputs.add_generation_prompt,
                                  py::arg("tools") = py::len(tools) > 0 ? tools : py::none(),
                                  py::arg("extra_context") = from_json(inputs.extra_context_json),
                                  py::arg("bos_token") = inputs.bos_token,
                                  py::arg("eos_token") = inputs.eos_token))
            .cast<std::string>();
    });
}

void raise_pending_signals() {
    const Locked locked;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

}  // namespace pagewheel::python
