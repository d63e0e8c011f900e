#include "pagewheel/grammar.hpp"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <atomic>

#include "bindings.hpp"
#include "conversions.hpp"
#include "grammar_library.hpp"

namespace pagewheel::python {
namespace {

py::array_t<uint32_t> compute_mask(GrammarMatcher& matcher) {
    py::array_t<uint32_t> mask(py::ssize_t(matcher.mask_words()));
    uint32_t* bits = mask.mutable_data();
    const Unlocked unlocked;
    matcher.compute_mask(bits);
    return mask;
}

std::vector<int64_t> allowed_tokens(GrammarMatcher& matcher) {
    std::vector<uint32_t> mask(matcher.mask_words());
    matcher.compute_mask(mask.data());
    std::vector<int64_t> tokens;
    for (size_t i = 0; i < mask.size() * 32; ++i)
        if ((mask[i / 32] >> (i % 32) & 1) != 0) tokens.push_back(int64_t(i));
    return tokens;
}

void bind_matcher(py::module_& module) {
    py::class_<GrammarMatcher>(module, "GrammarMatcher",
                               R"(What a grammar allows one text to go on with.

Made by Grammar.matcher(). One thread at a time may use it. RuntimeError where the grammar cannot go on.)")
        .def("compute_mask", &compute_mask,
             "numpy array of uint32: bit i % 32 of word i // 32 says whether token i may come.")
        .def("allowed_tokens", &allowed_tokens, py::call_guard<Unlocked>(),
             "The ids of tokens that may come.")
        .def("accept", &GrammarMatcher::accept, py::arg("token"),
             "Takes the next token. False, and nothing has changed, if it may not come.")
        .def("roll_back", &GrammarMatcher::roll_back, py::arg("tokens") = 1,
             "Takes back the last tokens.")
        .def("jump_forward_tokens", &GrammarMatcher::jump_forward_tokens,
             py::call_guard<Unlocked>(),
             "The tokens that must come, as the tokenizer writes their text; not accepted yet.")
        .def_property_readonly("is_accepting", &GrammarMatcher::is_accepting,
                               "Whether the text may end here.")
        .def_property_readonly("is_finished", &GrammarMatcher::is_finished,
                               "Whether it has ended, or nothing but the end may come.")
        .def("__len__", &GrammarMatcher::token_count)
        .def("clone", &GrammarMatcher::clone, "A copy that goes its own way.");
}

}  // namespace

void find_grammar_library() {
    // A static with an initialiser that runs Python would deadlock: a second thread would wait for
    // it with the interpreter's lock, which the first one needs to go on. Two may look it up.
    static std::atomic<bool> is_found = false;
    if (is_found) return;
    const py::object path = py::module_::import("pagewheel.grammar_library").attr("find_library")();
    if (!path.is_none()) set_grammar_library(to_text(path));
    is_found = true;
}

void bind_grammar(py::module_& module) {
    bind_matcher(module);
    py::class_<Grammar>(module, "Grammar", R"(A grammar, compiled for a tokenizer.

Grammar(config, tokenizer): a StructuredOutputConfig, or one of its parts. Raises ValueError for a grammar that is
refused, with the place; RuntimeError without the package llguidance.)")
        .def(py::init([](const py::object& config, const Tokenizer& tokenizer) {
                 find_grammar_library();
                 const StructuredOutputConfig structured = to_structured_output(config);
                 const Unlocked unlocked;
                 return Grammar(structured, tokenizer);
             }),
             py::arg("config"), py::arg("tokenizer"))
        .def("accepts", &Grammar::accepts, py::arg("text"), py::call_guard<Unlocked>(),
             "Whether the whole text is of the grammar.")
        .def("accepts_prefix", &Grammar::accepts_prefix, py::arg("text"),
             py::call_guard<Unlocked>(), "Whether a text of the grammar begins like this.")
        .def("matcher", &Grammar::matcher, py::arg("stop_tokens") = std::vector<int64_t>(),
             "A GrammarMatcher at the beginning of a text, which stop_tokens may end; without any, "
             "the tokenizer's end-of-text token.");
    module.def("grammar_library_version", &grammar_library_version,
               "The versions of the package llguidance that grammars may use, as pip has them.");
}

}  // namespace pagewheel::python
