#include <pybind11/stl.h>

#include "bindings.hpp"
#include "conversions.hpp"
#include "pagewheel/chat_history.hpp"
#include "pagewheel/tokenizer.hpp"

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

namespace {

/// Tensors as Python has them: openvino.Tensor, i64 [batch, longest].
struct PyTokenizedInputs {
    py::object input_ids;
    py::object attention_mask;
};

/// Gives one list of texts, or two: those of the firsts and the seconds of pairs.
PyTokenizedInputs encode(const Tokenizer& tokenizer, const std::vector<std::string>& prompts,
                         const std::optional<std::vector<std::string>>& seconds,
                         const EncodeOptions& options) {
    TokenizedInputs inputs;
    {
        const Unlocked unlocked;
        inputs = seconds ? tokenizer.encode(prompts, *seconds, options)
                         : tokenizer.encode(prompts, options);
    }
    return {to_openvino_tensor(inputs.input_ids), to_openvino_tensor(inputs.attention_mask)};
}

PyTokenizedInputs encode_text(const Tokenizer& tokenizer, const EncodeOptions& options,
                              const py::str& prompt) {
    return encode(tokenizer, {to_text(prompt)}, {}, options);
}

PyTokenizedInputs encode_lists(const Tokenizer& tokenizer, const EncodeOptions& options,
                               const py::sequence& firsts, const py::sequence& seconds) {
    return encode(tokenizer, to_texts(firsts), to_texts(seconds), options);
}

/// Texts, or pairs of them.
PyTokenizedInputs encode_all(const Tokenizer& tokenizer, const EncodeOptions& options,
                             const py::sequence& prompts) {
    std::vector<std::string> firsts, seconds;
    for (const py::handle& each : prompts) {
        if (py::isinstance<py::str>(each)) {
            firsts.push_back(to_text(each));
            continue;
        }
        const auto pair = is_sequence(each) ? to_texts(each) : std::vector<std::string>();
        if (pair.size() != 2)
            throw py::type_error("prompts must hold texts, or pairs of texts, got " +
                                 type_of(each));
        firsts.push_back(pair[0]);
        seconds.push_back(pair[1]);
    }
    if (seconds.empty()) return encode(tokenizer, firsts, {}, options);
    if (seconds.size() != firsts.size())
        throw py::type_error("prompts hold texts and pairs of texts; allowed: either");
    return encode(tokenizer, firsts, seconds, options);
}

/// A sequence of numbers, or an array of one dimension.
bool is_one_row(const py::object& tokens) {
    if (py::hasattr(tokens, "ndim")) return tokens.attr("ndim").cast<int>() == 1;
    if (py::hasattr(tokens, "get_element_type")) return py::len(tokens.attr("shape")) == 1;
    return is_sequence(tokens) &&
           (py::len(tokens) == 0 || PyIndex_Check(py::object(tokens[py::int_(0)]).ptr()) != 0);
}

py::object decode(const Tokenizer& tokenizer, const py::object& tokens, bool skip_special_tokens) {
    const bool is_flat = is_one_row(tokens);
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

template <class... Arguments>
Tokenizer construct(const py::dict& properties, const Arguments&... arguments) {
    const ov::AnyMap map = to_properties(properties).first;
    std::optional<Tokenizer> tokenizer;
    {
        const Unlocked unlocked;
        tokenizer.emplace(arguments..., map);
    }
    use_jinja(*tokenizer);
    return *tokenizer;
}

/// An overload of encode(): each has the same options behind its prompts, which `names` name.
template <class... Prompts, class... Names>
void bind_encode(py::class_<Tokenizer>& bound,
                 PyTokenizedInputs (*encode)(const Tokenizer&, const EncodeOptions&, Prompts...),
                 const char* doc, const Names&... names) {
    bound.def(
        "encode",
        [encode](const Tokenizer& tokenizer, Prompts... prompts, bool add_special_tokens,
                 bool pad_to_max_length, std::optional<size_t> max_length,
                 const std::optional<std::string>& padding_side, bool truncation) {
            EncodeOptions options;
            options.add_special_tokens = add_special_tokens;
            options.pad_to_max_length = pad_to_max_length;
            options.max_length = max_length;
            options.padding_side = padding_side;
            options.truncation = truncation;
            return encode(tokenizer, options, prompts...);
        },
        py::arg(names)..., py::arg("add_special_tokens") = true,
        py::arg("pad_to_max_length") = false, py::arg("max_length") = py::none(),
        py::arg("padding_side") = py::none(), py::arg("truncation") = false, doc);
}

py::dict vocabulary(const Tokenizer& tokenizer) {
    py::dict result;
    const auto tokens = tokenizer.get_vocab_vector();
    for (size_t i = 0; i < tokens.size(); ++i) result[py::bytes(tokens[i])] = i;
    return result;
}

}  // namespace

Tokenizer make_tokenizer(const py::object& path, const py::dict& properties) {
    return construct(properties, resolve_tokenizer(path));
}

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

Tokenizer(path): a model folder or a .gguf file. Tokenizer(tokenizer_model, tokenizer_weights, detokenizer_model,
detokenizer_weights): what the files of a folder would hold, texts and bytes. properties and kwargs: OpenVINO's for
the CPU, which runs it.)");
    tokenizer
        .def(py::init(
                 [](const py::object& path, const py::dict& properties, const py::kwargs& kwargs) {
                     return make_tokenizer(path, merged_properties(properties, kwargs));
                 }),
             py::arg("tokenizer_path"), py::arg("properties") = py::dict())
        .def(
            py::init([](const py::str& model, const py::object& weights, const py::str& detokenizer,
                        const py::object& detokenizer_weights, const py::kwargs& kwargs) {
                return construct(kwargs, to_text(model), to_byte_tensor(weights),
                                 to_text(detokenizer), to_byte_tensor(detokenizer_weights));
            }),
            py::arg("tokenizer_model"), py::arg("tokenizer_weights"), py::arg("detokenizer_model"),
            py::arg("detokenizer_weights"));
    bind_encode(
        tokenizer, &encode_text,
        "Token ids of a text. pad_to_max_length and truncation are to max_length, or without it "
        "to the model's own maximum. padding_side is 'left' or 'right', or without it the model's.",
        "prompt");
    bind_encode(
        tokenizer, &encode_lists,
        "Token ids of pairs of texts, where supports_paired_input() is true. Either list may have "
        "one text, which then is in every pair.",
        "prompts_1", "prompts_2");
    bind_encode(tokenizer, &encode_all,
                "Token ids of several texts, or pairs of texts, padded to the longest.", "prompts");
    tokenizer
        .def("supports_paired_input", &Tokenizer::supports_paired_input,
             "Whether it encodes pairs of texts.")
        .def(
            "decode", &decode, py::arg("tokens"), py::arg("skip_special_tokens") = true,
            R"(Text of a sequence of token ids; a list of texts for a batch (openvino.Tensor, numpy array,
list of lists). Ids outside the vocabulary have no text.)")
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
