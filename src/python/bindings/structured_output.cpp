#include "pagewheel/structured_output.hpp"

#include <pybind11/stl.h>

#include "bindings.hpp"
#include "conversions.hpp"
#include "grammar_library.hpp"

namespace pagewheel::python {
namespace {

using Config = StructuredOutputConfig;
using Node = Config::StructuralTag;

/// A structural tag. A text is the JSON of one, in the words of xgrammar.
Node to_node(const py::handle& value) {
    if (py::isinstance<py::str>(value))
        return to_node(py::module_::import("pagewheel.structural_tag").attr("from_json")(value));
    try {
        return value.cast<Node>();
    } catch (const py::cast_error&) {
        throw py::type_error(
            "expected a part of StructuredOutputConfig (Regex, JSONSchema, EBNF, "
            "ConstString, AnyText, Tag...), got " +
            std::string(py::str(py::type::of(value))));
    }
}

std::vector<Node> to_nodes(const py::handle& values) {
    std::vector<Node> nodes;
    for (const py::handle& each : values) nodes.push_back(to_node(each));
    return nodes;
}

/// JSON: a text, a dict, or a type that pydantic knows.
std::string to_schema(const py::handle& schema) {
    return to_text(py::module_::import("pagewheel.json_schema").attr("to_json_schema")(schema));
}

std::string to_repr(const py::handle& value) {
    return py::repr(value);
}

template <class T>
std::string joined(const std::vector<T>& parts) {
    std::string result;
    for (const T& each : parts) result += (result.empty() ? "" : ", ") + to_repr(py::cast(each));
    return result;
}

/// The elements of a Concat or Union among `value` and `other`, which one of them may be already.
template <class Compound>
std::shared_ptr<Compound> composed(const py::object& value, const py::object& other) {
    auto result = std::make_shared<Compound>();
    for (const py::object& each : {value, other}) {
        const Node node = to_node(each);
        const auto* same = std::get_if<std::shared_ptr<Compound>>(&node);
        if (same)
            result->elements.insert(result->elements.end(), (*same)->elements.begin(),
                                    (*same)->elements.end());
        else
            result->elements.push_back(node);
    }
    return result;
}

template <class Class>
void add_operators(Class& bound) {
    bound.def("__add__", &composed<Config::Concat>, "One after the other.");
    bound.def("__or__", &composed<Config::Union>, "One or the other.");
}

/// The class and its attributes of these names.
template <class Class>
void add_repr(Class& bound, std::vector<const char*> names) {
    bound.def("__repr__", [names = std::move(names)](const py::object& self) {
        std::string members;
        for (const char* name : names)
            members +=
                std::string(members.empty() ? "" : ", ") + name + '=' + to_repr(self.attr(name));
        return to_text(py::type::of(self).attr("__name__")) + '(' + members + ')';
    });
}

/// Sets attributes of a new object, so that what is no attribute is an AttributeError.
template <class Made>
Made from_kwargs(const py::kwargs& kwargs) {
    const py::object self = py::cast(Made());
    for (const auto& [name, value] : kwargs) {
        if (!py::hasattr(self, name)) throw py::type_error("unexpected argument " + to_repr(name));
        py::setattr(self, name, value);
    }
    return self.cast<Made>();
}

/// A part that holds one text, which `convert` makes of what is given.
template <class Given, class Part>
void bind_text_part(py::handle scope, const char* name, std::string Part::* member,
                    const char* member_name, std::string (*convert)(const py::handle&),
                    const char* doc) {
    py::class_<Part> part(scope, name, doc);
    part.def(py::init([=](const Given& given) {
                 Part made;
                 made.*member = convert(given);
                 return made;
             }),
             py::arg(member_name))
        .def_property(
            member_name, [=](const Part& self) { return self.*member; },
            [=](Part& self, const Given& given) { self.*member = convert(given); })
        .def("__repr__", [=](const Part& self) {
            return std::string(name) + '(' + to_repr(py::cast(self.*member)) + ')';
        });
    add_operators(part);
}

template <class Part>
using Shared = py::class_<Part, std::shared_ptr<Part>>;

/// The parts that hold parts. All are declared before the first signature that names one.
struct Compounds {
    Shared<Config::Concat> concat;
    Shared<Config::Union> either;
    Shared<Config::Tag> tag;
    Shared<Config::TriggeredTags> triggered;
    Shared<Config::TagsWithSeparator> separated;

    explicit Compounds(py::handle scope)
        : concat(scope, "Concat", "Parts, one after the other. Also a + b."),
          either(scope, "Union", "One of several parts. Also a | b."),
          tag(scope, "Tag",
              "A begin, a content and an end. AnyText ends where the end first comes."),
          triggered(scope, "TriggeredTags",
                    "Free text, in which each trigger begins one of the tags. at_least_one: the "
                    "text begins with a tag. stop_after_first: it ends with the first."),
          separated(scope, "TagsWithSeparator", "Tags with a text between them.") {}
};

template <class Compound>
void bind_compound(Shared<Compound>& bound, const char* name) {
    bound
        .def(py::init([=](const py::args& args) {
            const bool is_list = args.size() == 1 && !py::isinstance<py::str>(args[0]) &&
                                 py::hasattr(args[0], "__iter__");
            auto made = std::make_shared<Compound>();
            made->elements = to_nodes(is_list ? py::object(args[0]) : py::object(args));
            if (made->elements.size() < 2)
                throw py::value_error(std::string("StructuredOutputConfig.") + name +
                                      " requires at least two elements");
            return made;
        }))
        .def_property(
            "elements", [](const Compound& self) { return self.elements; },
            [](Compound& self, const py::iterable& elements) {
                self.elements = to_nodes(elements);
            })
        .def("__repr__", [=](const Compound& self) {
            return std::string(name) + '(' + joined(self.elements) + ')';
        });
    add_operators(bound);
}

void bind_parts(py::handle scope) {
    bind_text_part<py::str>(scope, "Regex", &Config::Regex::value, "value", to_text,
                            "A text that a regular expression (Rust's syntax) matches as a whole.");
    bind_text_part<py::object>(
        scope, "JSONSchema", &Config::JSONSchema::value, "value", to_schema,
        "JSON of a schema: a JSON text, a dict, a pydantic model or another type.");
    bind_text_part<py::str>(scope, "EBNF", &Config::EBNF::value, "value", to_text,
                            "A text of a grammar with rules like root ::= \"a\" [0-9]+ other.");
    bind_text_part<py::str>(scope, "Lark", &Config::Lark::value, "value", to_text,
                            "A text of a grammar in llguidance's Lark, with the rule start.");
    bind_text_part<py::str>(scope, "ConstString", &Config::ConstString::value, "value", to_text,
                            "Exactly this text.");
    bind_text_part<py::object>(
        scope, "QwenXMLParametersFormat", &Config::QwenXMLParametersFormat::json_schema,
        "json_schema", to_schema,
        "<parameter=name>value</parameter> for each property of a JSON schema.");

    py::class_<Config::Choice> choice(scope, "Choice", "One of several texts.");
    choice
        .def(py::init([](const py::iterable& values) { return Config::Choice{to_texts(values)}; }),
             py::arg("values"))
        .def_readwrite("values", &Config::Choice::values)
        .def("__repr__",
             [](const Config::Choice& self) { return "Choice([" + joined(self.values) + "])"; });
    add_operators(choice);

    py::class_<Config::AnyText> any(scope, "AnyText", "Any text.");
    any.def(py::init<>()).def("__repr__", [](const Config::AnyText&) { return "AnyText()"; });
    add_operators(any);
}

std::vector<Config::Tag> to_tags(const py::iterable& values) {
    std::vector<Config::Tag> tags;
    for (const py::handle& each : values) tags.push_back(each.cast<Config::Tag>());
    return tags;
}

void bind_tags(Compounds& all) {
    auto& [concat, either, tag, triggered, separated] = all;
    bind_compound(concat, "Concat");
    bind_compound(either, "Union");
    tag.def(py::init([](const py::str& begin, const py::object& content, const py::str& end) {
                return std::make_shared<Config::Tag>(
                    Config::Tag{to_text(begin), to_node(content), to_text(end)});
            }),
            py::arg("begin"), py::arg("content"), py::arg("end"))
        .def_readwrite("begin", &Config::Tag::begin)
        .def_property(
            "content", [](const Config::Tag& self) { return self.content; },
            [](Config::Tag& self, const py::object& content) { self.content = to_node(content); })
        .def_readwrite("end", &Config::Tag::end);
    add_repr(tag, {"begin", "content", "end"});
    add_operators(tag);

    triggered.def(py::init([](const py::iterable& triggers, const py::iterable& tags,
                              bool at_least_one, bool stop_after_first) {
                      return std::make_shared<Config::TriggeredTags>(Config::TriggeredTags{
                          to_texts(triggers), to_tags(tags), at_least_one, stop_after_first});
                  }),
                  py::arg("triggers"), py::arg("tags"), py::arg("at_least_one") = false,
                  py::arg("stop_after_first") = false);
    read_write<&Config::TriggeredTags::triggers, &Config::TriggeredTags::tags,
               &Config::TriggeredTags::at_least_one, &Config::TriggeredTags::stop_after_first>(
        triggered);
    add_repr(triggered, {"triggers", "tags", "at_least_one", "stop_after_first"});
    add_operators(triggered);

    separated.def(py::init([](const py::iterable& tags, const py::str& separator, bool at_least_one,
                              bool stop_after_first) {
                      return std::make_shared<Config::TagsWithSeparator>(Config::TagsWithSeparator{
                          to_tags(tags), to_text(separator), at_least_one, stop_after_first});
                  }),
                  py::arg("tags"), py::arg("separator"), py::arg("at_least_one") = false,
                  py::arg("stop_after_first") = false);
    read_write<&Config::TagsWithSeparator::tags, &Config::TagsWithSeparator::separator,
               &Config::TagsWithSeparator::at_least_one,
               &Config::TagsWithSeparator::stop_after_first>(separated);
    add_repr(separated, {"tags", "separator", "at_least_one", "stop_after_first"});
    add_operators(separated);
}

void bind_tags_config(py::module_& module) {
    py::class_<StructuralTagItem> item(module, "StructuralTagItem",
                                       "A begin, JSON of a schema, and an end.");
    item.def(py::init(&from_kwargs<StructuralTagItem>))
        .def_readwrite("begin", &StructuralTagItem::begin)
        .def_property(
            "schema", [](const StructuralTagItem& self) { return self.schema; },
            [](StructuralTagItem& self, const py::object& schema) {
                self.schema = to_schema(schema);
            })
        .def_readwrite("end", &StructuralTagItem::end);
    add_repr(item, {"begin", "schema", "end"});
    py::class_<StructuralTagsConfig> tags(
        module, "StructuralTagsConfig",
        "Free text, in which each of the triggers begins one of the structural_tags.");
    tags.def(py::init(&from_kwargs<StructuralTagsConfig>));
    read_write<&StructuralTagsConfig::structural_tags, &StructuralTagsConfig::triggers>(tags);
    add_repr(tags, {"structural_tags", "triggers"});
}

template <class T>
py::object optional_of(const std::optional<T>& value) {
    return value ? py::cast(*value) : py::none();
}

void bind_members(py::class_<Config>& config) {
    config
        .def_property(
            "json_schema", [](const Config& self) { return optional_of(self.json_schema); },
            [](Config& self, const py::object& schema) {
                self.json_schema.reset();
                if (!schema.is_none()) self.json_schema = to_schema(schema);
            },
            "A JSON schema: a JSON text, a dict, a pydantic model or another type.")
        .def_readwrite("regex", &Config::regex, "A regular expression of the whole text.")
        .def_readwrite("grammar", &Config::grammar, "An EBNF grammar.")
        .def_property(
            "structural_tags_config",
            [](const Config& self) { return optional_of(self.structural_tags_config); },
            [](Config& self, const py::object& tags) {
                self.structural_tags_config.reset();
                if (py::isinstance<StructuralTagsConfig>(tags))
                    self.structural_tags_config = tags.cast<StructuralTagsConfig>();
                else if (!tags.is_none())
                    self.structural_tags_config = to_node(tags);
            },
            "StructuralTagsConfig, or any part.")
        .def_property(
            "compound_grammar",
            [](const Config& self) { return optional_of(self.compound_grammar); },
            [](Config& self, const py::object& node) {
                self.compound_grammar.reset();
                if (!node.is_none()) self.compound_grammar = to_node(node);
            },
            "Any part: parts are composed by + and |.")
        .def_property(
            "begin_after", [](const Config& self) { return self.begin_after; },
            [](Config& self, const py::str& text) { self.begin_after = to_text(text); },
            "Not empty: free text comes first, up to this one, such as \"</think>\", and white "
            "space.")
        .def_readwrite(
            "allow_additional_properties", &Config::allow_additional_properties,
            "What a JSON schema means that does not mention additionalProperties. False: "
            "its objects have the declared properties only. True: they may have others, "
            "as JSON Schema specifies.");
}

}  // namespace

StructuredOutputConfig to_structured_output(const py::handle& value) {
    if (py::isinstance<Config>(value)) return value.cast<Config>();
    Config config;
    config.compound_grammar = to_node(value);
    return config;
}

void bind_structured_output(py::module_& module) {
    py::class_<Config> config(module, "StructuredOutputConfig",
                              R"(The shape that a text must have: one of the five is set.

json_schema, regex, grammar (EBNF), structural_tags_config, compound_grammar. The classes in this class are parts
of a compound grammar. begin_after is the text that free text before it ends with. allow_additional_properties
lets objects have properties that a JSON schema does not declare, where it does not forbid them.)");
    Compounds compounds(config);
    bind_parts(config);
    bind_tags(compounds);
    bind_tags_config(module);
    bind_members(config);
    config
        .def(py::init([](const py::kwargs& kwargs) {
            find_grammar_library();
            const auto made = from_kwargs<Config>(kwargs);
            if (kwargs.size() > 0) made.validate();
            return made;
        }))
        .def("validate", &Config::validate, "Raises ValueError unless one of the five is set.");
    add_repr(config, {"json_schema", "regex", "grammar", "structural_tags_config",
                      "compound_grammar", "begin_after", "allow_additional_properties"});
}

}  // namespace pagewheel::python
