#include "pagewheel/prefix_cache.hpp"

#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include "bindings.hpp"
#include "conversions.hpp"

namespace pagewheel::python {

namespace {

template <auto method>
auto with_tokens(PrefixCache& cache, const py::object& prompt, const std::string& salt) {
    const auto tokens = to_tokens(prompt);
    const Unlocked unlocked;
    return (cache.*method)(tokens, salt);
}

}  // namespace

void bind_prefix_cache(py::module_& module) {
    using C = PrefixCache;
    using WithoutLock = py::call_guard<Unlocked>;
    py::class_<C>(module, "PrefixCache", R"(What a pipeline keeps of the prompts it has seen.

Of a pipeline with enable_prefix_caching; else every method raises ValueError. From any thread.)")
        .def("num_tokens", &C::num_tokens, WithoutLock(), "Tokens that are cached.")
        .def("num_tokens_by_salt", &C::num_tokens_by_salt, WithoutLock(),
             "The same by cache_salt; \"\" stands for requests without one.")
        .def(
            "pin", &with_tokens<&C::pin>, py::arg("prompt"), py::arg("salt") = "",
            R"(Computes a prompt (token ids) if it is not cached, and keeps it until unpin(); its length.
ValueError if more than half of the blocks would be pinned, or an accepted request could not be served.)")
        .def("unpin", &with_tokens<&C::unpin>, py::arg("prompt"), py::arg("salt") = "",
             "False if exactly this was not pinned.")
        .def("clear", &C::clear, py::arg("salts") = py::none(), WithoutLock(),
             "Forgets all that is not pinned, or of that what requests with one of these salts "
             "computed.")
        .def(
            "save",
            [](const C& cache, const std::filesystem::path& path, uint64_t max_bytes,
               const std::optional<std::set<std::string>>& salts) {
                cache.save(path, {max_bytes, salts});
            },
            py::arg("path"), py::arg("max_bytes") = 0, py::arg("salts") = py::none(), WithoutLock(),
            R"(Writes all of it to a file; RuntimeError if that is not possible. Of a file of up to max_bytes
(0: no limit) the most recently used prefixes. With salts, a set, only what requests with one of these
values of cache_salt have computed; "" stands for requests without one.)")
        .def(
            "load", &C::load, py::arg("path"), WithoutLock(),
            R"(Adds what a file has, while there are free blocks; how many tokens. ValueError if it was saved
with another model, device, cache format or version of OpenVINO, RuntimeError if it is damaged.)");
}

}  // namespace pagewheel::python
