#include "options.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <sstream>

#include "check.hpp"

namespace pagewheel::benchmark {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> parts;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
    return parts;
}

size_t number(const std::string& name, const std::string& text, size_t least) {
    const bool digits =
        !text.empty() && text.size() < 10 &&
        std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
    const size_t value = digits ? std::stoul(text) : 0;
    check_argument(digits && value >= least, name, " is '", text,
                   "', expected a number of at least ", least);
    return value;
}

std::vector<size_t> numbers(const std::string& name, const std::string& text) {
    std::vector<size_t> values;
    for (const std::string& part : split(text, ',')) values.push_back(number(name, part, 1));
    return values;
}

AttentionShape shape(const std::string& name, const std::string& text) {
    const auto parts = split(text, '/');
    check_argument(parts.size() == 3, name, " is '", text, "', expected HEADS/KV_HEADS/HEAD_SIZE");
    const AttentionShape shape{number(name, parts[0], 1), number(name, parts[1], 1),
                               number(name, parts[2], 2)};
    check_argument(shape.heads % shape.kv_heads == 0, name, " is '", text,
                   "', expected a multiple of ", shape.kv_heads, " heads");
    return shape;
}

}  // namespace

Options parse_options(int count, char** arguments) {
    Options options;
    using Setter = std::function<void(const std::string& name, const std::string& value)>;
    const auto size = [](size_t& target, size_t least) -> Setter {
        return [&target, least](const auto& name, const auto& value) {
            target = number(name, value, least);
        };
    };
    const auto list = [](std::vector<size_t>& target) -> Setter {
        return [&target](const auto& name, const auto& value) { target = numbers(name, value); };
    };
    const std::map<std::string, Setter> setters{
        {"--shape", [&](auto& name, auto& value) { options.shape = shape(name, value); }},
        {"--formats", [&](auto&, auto& value) { options.formats = split(value, ','); }},
        {"--contexts", list(options.contexts)},
        {"--batches", list(options.batches)},
        {"--prefills", list(options.prefills)},
        {"--layers", size(options.layers, 1)},
        {"--rounds", size(options.rounds, 1)},
        {"--threads",
         [&](auto& name, auto& value) { options.threads = int(number(name, value, 1)); }},
        {"--rotate-from", size(options.rotate_from, 1)},
        {"--openvino-precision",
         [&](auto& name, auto& value) {
             check_argument(value == "f32" || value == "bf16", name, " is '", value,
                            "', expected f32 or bf16");
             options.openvino_precision = value;
         }},
        {"--memory-gb",
         [&](auto& name, auto& value) { options.memory_gb = double(number(name, value, 1)); }},
        {"--json", [&](auto&, auto& value) { options.json = value; }},
    };
    for (int i = 1; i < count; i += 2) {
        const std::string name = arguments[i];
        if (name == "--help" || name == "-h") {
            options.help = true;
            return options;
        }
        const auto setter = setters.find(name);
        check_argument(setter != setters.end(), "unknown option ", name, "; see --help");
        check_argument(i + 1 < count, name, " needs a value");
        setter->second(name, arguments[i + 1]);
    }
    return options;
}

const char* usage() {
    return R"(attention_benchmark: the attention operation alone, the openvino backend beside native

  --shape H/K/D           heads, kv heads, head size [9/3/64, SmolLM2's]
  --formats LIST          cache formats: f32, bf16, f16, u8, u4 [u8,bf16]
  --contexts LIST         tokens each sequence of a decode attends to [128,1024,8192,32768]
  --batches LIST          sequences that decode at once [1,8,32]
  --prefills LIST         tokens of a prompt [512,4096]; 'none': --prefills ''
  --layers N              layers of a decode, each with its own cache [enough for 256 MB of cache,
                          at most 32]
  --rounds N              [11]
  --threads N             [all cores]
  --rotate-from N         contexts from here on are measured with every block rotated too [32768]
  --openvino-precision P  f32 or bf16: what that backend infers in [bf16; f32 with an f32 cache]
  --memory-gb N           cases whose caches need more are left out [half of the free memory]
  --json FILE             write medians and samples there

Times are of a whole inference of a graph that holds nothing but the operation, divided by its
layers; nothing is subtracted. 'empty' is the same of a graph with one trivial node.
)";
}

}  // namespace pagewheel::benchmark
