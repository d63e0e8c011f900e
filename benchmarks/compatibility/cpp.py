"""C++: what openvino_genai's library exports, and which of it pagewheel's headers take.

A library's symbols have the functions of public classes with the types of their parameters, but no
fields, constants and templates. Each function becomes a line of a program that calls it; what the
compiler refuses is missing.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

import openvino

import pagewheel

_CLASSES = {"GenerationHandle": "GenerationHandleImpl"}  # whose C++ name is another
# Which are C++'s alone, or in the package's inner module.
_ALSO = ("ExtendedPerfMetrics", "JsonContainer", "SDPerfMetrics", "SDPerModelsPerfMetrics")
_FUNCTIONS = ("draft_model", "generation_config", "streamer")
# Private or protected in its headers, or of a class that users do not get.
_NOT_PUBLIC = (
    "Impl>",
    "std::shared_ptr<ov::Model>",
    "::_",
    "JsonContainer::concatenate",
    "PerfMetrics::emplace_duration",
    "TextStreamer::compute_decoded_length_for_position",
    "TextStreamer::run_callback_if_needed",
    "TextStreamer::set_streaming_status",
)
# Of pipelines that take images or sounds, too.
_FOREIGN = re.compile(
    r"ASR|Image|Speech|Whisper|vlm|std::vector<std::vector<ov::Tensor>>"
    r"|string const&, std::vector<ov::Tensor>|(, ov::AnyMap const&){3}"
)
# As a program writes them; the first ones are in those that follow.
_SHORT = (
    (r"std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> ?>", "string"),
    (r"\[abi:cxx11\]", ""),
    (r"ov::genai::", ""),
    (r"std::filesystem::__cxx11::path", "std::filesystem::path"),
    (r", std::allocator<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*> ?>", ">"),
    (r"std::map<string, ov::Any, std::less<string ?>>", "ov::AnyMap"),
    (
        r"std::variant<std::function<StreamingStatus \(string\)>, [^)]*?monostate>",
        "StreamerVariant",
    ),
    (r"std::variant<string, std::vector<string ?> ?>", "StringInputs"),
    (r"std::variant<ov::Tensor, TokenizedInputs>", "EncodedInputs"),
    (r"std::optional<GenerationConfig>", "OptionalGenerationConfig"),
    (r"std::chrono::_V2::", "std::chrono::"),
    (r"decltype\(nullptr\)", "std::nullptr_t"),
)
_HEADERS = """\
#include <optional>
#include <utility>
#include "openvino/genai/continuous_batching_pipeline.hpp"
#include "openvino/genai/lora_adapter.hpp"
#include "openvino/genai/parsers.hpp"
#include "openvino/genai/speculative_decoding/perf_metrics.hpp"
using namespace ov::genai;
using std::string;
"""


def exported(library: Path, names: Iterable[str]) -> list[str]:
    """Functions of these classes, as "Class::name(types) const"."""
    listed = subprocess.run(
        ["nm", "--dynamic", "--demangle", "--defined-only", library],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    classes = {_CLASSES.get(name, name) for name in names} | set(_ALSO)
    found = {
        _short(line.split(" ", 2)[2]) for line in listed.splitlines() if " T ov::genai::" in line
    }
    return sorted(
        function
        for function in found
        if _owner(function) in classes or function.partition("(")[0] in _FUNCTIONS
        if not any(hidden in function for hidden in _NOT_PUBLIC)
        if "~" not in function and not _FOREIGN.search(function)
    )


def missing(functions: list[str]) -> list[str]:
    """Those that a program cannot call with pagewheel's headers."""
    program = _HEADERS + "".join(f"{_call(i, each)}\n" for i, each in enumerate(functions))
    include = pagewheel.cmake_dir().parent / "include"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "calls.cpp"
        path.write_text(program, encoding="utf-8")
        done = subprocess.run(
            [
                *("c++", "-std=c++17", "-fsyntax-only", "-fmax-errors=0"),
                *("-I", include / "pagewheel/openvino_genai", "-I", include),
                *("-isystem", Path(openvino.__file__).parent / "include"),
                path,
            ],
            capture_output=True,
            text=True,
        )
        lines = {
            int(line)
            for line in re.findall(rf"^{re.escape(str(path))}:(\d+):", done.stderr, re.MULTILINE)
        }
    first = _HEADERS.count("\n") + 1
    if done.returncode != 0 and not lines:
        raise RuntimeError(done.stderr)
    return [each for i, each in enumerate(functions) if first + i in lines]


def _short(function: str) -> str:
    for pattern, name in _SHORT:
        previous = ""
        while previous != function:  # from the inside
            previous, function = function, re.sub(pattern, name, function)
    return function.replace(" >", ">").strip()


def _owner(function: str) -> str:
    return function.partition("(")[0].rpartition("::")[0]


def _call(i: int, function: str) -> str:
    name, _, rest = function.partition("(")
    types = _split(rest.rpartition(")")[0])
    given = ", ".join(f"std::declval<{each}>()" for each in types)
    owner, _, own = name.rpartition("::")
    if not owner:
        return f"using call_{i} = decltype(ov::genai::{name}({given}));"
    if own == owner:  # also of a class with functions that are left to users
        parameters = ", ".join(f"{each} p{n}" for n, each in enumerate(types))
        passed = ", ".join(f"std::forward<{each}>(p{n})" for n, each in enumerate(types))
        return f"struct call_{i} : {owner} {{ call_{i}({parameters}) : {owner}({passed}) {{}} }};"
    const = "const " if rest.endswith("const") else ""
    return f"using call_{i} = decltype(std::declval<{const}{owner}&>().{own}({given}));"


def _split(types: str) -> list[str]:
    """At commas outside of brackets."""
    parts, depth = [""], 0
    for character in types:
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]
