#include "pagewheel/tokenizer.hpp"

#include <pybind11/stl.h>

#include "bindings.hpp"
#include "conversions.hpp"
#include "fields.hpp"

namespace pagewheel::python {
namespace {

/// Tensors as Python has them: openvino.Tensor, i64 [batch, longest].
struct PyTokenizedInputs {
    py::object input_ids;
    py::object attention_mask;
};

PyTokenizedInputs encode(const Tokenizer& tokenizer, const std::vector<std::string>& prompts,
                         const EncodeOptions& options) {
    TokenizedInputs inputs;
    {
        const Unlocked unlocked;
        inputs = tokenizer.encode(prompts, options);
    }
    return {to_openvino_tensor(inputs.input_ids), to_openvino_tensor(inputs.attention_mask)};
}

EncodeOptions to_options(bool add_special_tokens, bool pad_to_max_length,
                         std::optional<size_t> max_length,
                         const std::optional<std::string>& padding_side, bool truncation) {
    EncodeOptions options;
    options.add_special_tokens = add_special_tokens;
    options.pad_to_max_length = pad_to_max_length;
    options.max_length = max_length;
    options.padding_side = padding_side.value_or("right");
    options.truncation = truncation;
    return options;
}

py::object decode(const Tokenizer& tokenizer, const py::object& tokens, bool skip_special_tokens) {
    // A flat list is one sequence and gives str; everything with rows gives a list of str.
    const bool is_flat = py::isinstance<py::list>(tokens) &&
                         (py::len(tokens) == 0 || py::isinstance<py::int_>(tokens[py::int_(0)]));
    std::vector<std::string> texts;
    for (const auto& row : to_token_rows(tokens)) {
        const Unlocked unlocked;
        texts.push_back(tokenizer.decode(row, skip_special_tokens));
    }
    return is_flat ? py::cast(texts.front()) : py::cast(texts);
}

std::string apply_chat_template(const Tokenizer& tokenizer, const py::object& history,
                                bool add_generation_prompt, const std::string& chat_template,
                                const py::object& tools, const py::object& extra_context) {
    ChatHistory chat = py::isinstance<ChatHistory>(history) ? history.cast<ChatHistory>()
                                                            : ChatHistory(to_json(history));
    if (!tools.is_none()) chat.set_tools_json(to_json(tools));
    if (!extra_context.is_none()) chat.set_extra_context_json(to_json(extra_context));
    return tokenizer.apply_chat_template(chat, add_generation_prompt, chat_template);
}

py::dict vocabulary(const Tokenizer& tokenizer) {
    py::dict result;
    const auto tokens = tokenizer.get_vocab_vector();
    for (size_t i = 0; i < tokens.size(); ++i) result[py::bytes(tokens[i])] = i;
    return result;
}

}  // namespace

void bind_tokenizer(py::module_& module) {
    py::class_<PyTokenizedInputs>(module, "TokenizedInputs",
                                  "A padded batch: openvino.Tensor i64 [batch, longest] each.")
        .def(py::init([](const py::object& ids, const py::object& mask) {
                 return PyTokenizedInputs{ids, mask};
             }),
             py::arg("input_ids"), py::arg("attention_mask"))
        .def_readwrite("input_ids", &PyTokenizedInputs::input_ids)
        .def_readwrite("attention_mask", &PyTokenizedInputs::attention_mask);

    py::class_<Tokenizer> tokenizer(module, "Tokenizer", R"(Text to tokens and back.

Tokenizer(path): a model folder or a .gguf file.)");
    tokenizer
        .def(py::init([](const py::object& path) {
                 const auto folder = resolve_model(path);
                 std::optional<Tokenizer> tokenizer;
                 {
                     const Unlocked unlocked;
                     tokenizer.emplace(folder);
                 }
                 use_jinja(*tokenizer);
                 return *tokenizer;
             }),
             py::arg("tokenizer_path"))
        .def(
            "encode",
            [](const Tokenizer& t, const py::str& prompt, bool special, bool pad,
               std::optional<size_t> max_length, const std::optional<std::string>& side, bool cut) {
                return encode(t, {to_text(prompt)},
                              to_options(special, pad, max_length, side, cut));
            },
            py::arg("prompt"), py::arg("add_special_tokens") = true,
            py::arg("pad_to_max_length") = false, py::arg("max_length") = py::none(),
            py::arg("padding_side") = py::none(), py::arg("truncation") = false,
            "Token ids of a text. padding_side is 'left' or 'right'; truncation cuts to "
            "max_length.")
        .def(
            "encode",
            [](const Tokenizer& t, const py::list& prompts, bool special, bool pad,
               std::optional<size_t> max_length, const std::optional<std::string>& side, bool cut) {
                return encode(t, to_texts(prompts),
                              to_options(special, pad, max_length, side, cut));
            },
            py::arg("prompts"), py::arg("add_special_tokens") = true,
            py::arg("pad_to_max_length") = false, py::arg("max_length") = py::none(),
            py::arg("padding_side") = py::none(), py::arg("truncation") = false,
            "Token ids of several texts, padded to the longest.")
        .def(
            "decode", &decode, py::arg("tokens"), py::arg("skip_special_tokens") = true,
            R"(Text of a list of token ids; a list of texts for a batch (openvino.Tensor, numpy array,
list of lists). Raises IndexError for an id outside the vocabulary.)")
        .def("apply_chat_template", &apply_chat_template, py::arg("history"),
             py::arg("add_generation_prompt"), py::arg("chat_template") = "",
             py::arg("tools") = py::none(), py::arg("extra_context") = py::none(),
             R"(The prompt of a conversation: a ChatHistory or a list of message dicts.

Raises ValueError where the template fails, or does not end within ten seconds, 512 MB of memory and
16 million characters. RuntimeError where there is no template, or no process to render it in.)")
        .def("get_bos_token", &Tokenizer::get_bos_token,
             "The text of the token that begins a text; empty if the model has none.")
        .def("get_bos_token_id", &Tokenizer::get_bos_token_id, "-1 if the model has none.")
        .def("get_eos_token", &Tokenizer::get_eos_token,
             "The text of the token that ends a text; empty if the model has none.")
        .def("get_eos_token_id", &Tokenizer::get_eos_token_id, "-1 if the model has none.")
        .def("get_pad_token", &Tokenizer::get_pad_token,
             "The text of the token that fills up a batch; empty if the model has none.")
        .def("get_pad_token_id", &Tokenizer::get_pad_token_id, "-1 if the model has none.")
        .def("get_original_chat_template", &Tokenizer::get_original_chat_template,
             "The model's own chat template, whatever was set; empty if it has none.")
        .def("set_chat_template", &Tokenizer::set_chat_template, py::arg("chat_template"),
             "Renders by this Jinja template from now on.")
        .def_property("chat_template", &Tokenizer::get_chat_template, &Tokenizer::set_chat_template)
        .def("get_vocab", &vocabulary, "Ids by token; tokens are bytes, as not all are UTF-8.")
        .def(
            "get_vocab_vector",
            [](const Tokenizer& t) {
                py::list tokens;
                for (const std::string& token : t.get_vocab_vector())
                    tokens.append(py::reinterpret_steal<py::str>(
                        PyUnicode_DecodeUTF8(token.data(), py::ssize_t(token.size()), "replace")));
                return tokens;
            },
            "Tokens by id; bytes that are no UTF-8 are shown as U+FFFD.");
}

}  // namespace pagewheel::python
