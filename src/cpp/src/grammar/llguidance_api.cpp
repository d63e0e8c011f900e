#include "grammar/llguidance_api.hpp"

#include <dlfcn.h>

#include <cstring>
#include <mutex>
#include <optional>

#include "base/check.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel::llguidance {
namespace {

std::mutex library_mutex;
std::string library_path;

[[noreturn]] void refuse(const std::string& what) {
    throw Error(concat(what, ". Install it: pip install \"llguidance", versions, "\""),
                ErrorCode::grammar_library_missing);
}

#ifdef PAGEWHEEL_LINKS_LLGUIDANCE

extern "C" {
#define PAGEWHEEL_DECLARE(result, name, parameters) result llg_##name parameters;
PAGEWHEEL_LLGUIDANCE_FUNCTIONS(PAGEWHEEL_DECLARE)
#undef PAGEWHEEL_DECLARE
}

Api find_functions() {
    Api api;
#define PAGEWHEEL_FIND(result, name, parameters) api.name = &llg_##name;
    PAGEWHEEL_LLGUIDANCE_FUNCTIONS(PAGEWHEEL_FIND)
#undef PAGEWHEEL_FIND
    return api;
}

#else

void* find_function(void* library, const std::string& name) {
    void* function = dlsym(library, name.c_str());
    if (!function)
        refuse(concat(library_path, " has no ", name, ": it is no llguidance ", versions));
    return function;
}

/// The package's library refers to Python's functions, though those that are used call none. A C++
/// program gets them from the newest libpython that the system has.
bool load_python() {
    constexpr int oldest = 9, newest = 14;
    for (int minor = newest; minor >= oldest; --minor)
        if (dlopen(concat("libpython3.", minor, ".so.1.0").c_str(), RTLD_NOW | RTLD_GLOBAL))
            return true;
    return false;
}

Api find_functions() {
    if (library_path.empty()) refuse(concat("Structured output needs llguidance ", versions));
    void* library = dlopen(library_path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const std::string error = dlerror();
        if (load_python()) library = dlopen(library_path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (!library)
            refuse(concat("cannot load llguidance, which needs Python's functions or libpython: ",
                          error));
    }
    Api api;
#define PAGEWHEEL_FIND(result, name, parameters) \
    api.name = reinterpret_cast<decltype(Api::name)>(find_function(library, "llg_" #name));
    PAGEWHEEL_LLGUIDANCE_FUNCTIONS(PAGEWHEEL_FIND)
#undef PAGEWHEEL_FIND
    return api;
}

#endif

/// get_version() gives "llguidance@1.9.1 derivre@0.3.13".
void check_version(const std::string& found) {
    const std::string wanted = "llguidance@1.9.";
    if (found.compare(0, wanted.size(), wanted) != 0)
        refuse(concat("this is ", found, ", and pagewheel needs llguidance ", versions));
}

/// The library writes its defaults into the struct that matchers are made with. All bytes must be
/// those that our layout gives to the documented defaults, and none may be written behind it. (The
/// tokenizer's struct tells its size, and the library reads no more.)
void check_layout(const Api& api) {
    constexpr size_t room = sizeof(MatcherOptions) + 64;
    constexpr int untouched = 0x5a;
    alignas(MatcherOptions) unsigned char written[room], expected[room];
    std::memset(written, untouched, room);
    std::memset(expected, untouched, room);
    const auto* tokenizer = reinterpret_cast<const Tokenizer*>(written);
    api.constraint_init_set_defaults(reinterpret_cast<MatcherOptions*>(written), tokenizer);
    const auto put = [&](size_t offset, auto value) {
        std::memcpy(expected + offset, &value, sizeof(value));
    };
    put(offsetof(MatcherOptions, tokenizer), tokenizer);
    put(offsetof(MatcherOptions, buffer_log_level), uint32_t(0));
    put(offsetof(MatcherOptions, stderr_log_level), uint32_t(1));
    put(offsetof(MatcherOptions, forced_tokens_ok), false);
    put(offsetof(MatcherOptions, backtrack_ok), false);
    constexpr size_t limits = offsetof(MatcherOptions, limits);
    put(limits + offsetof(ParserLimits, row_items), size_t(2000));
    put(limits + offsetof(ParserLimits, compile_fuel), uint64_t(1'000'000));
    put(limits + offsetof(ParserLimits, step_fuel), uint64_t(200'000));
    put(limits + offsetof(ParserLimits, step_items), size_t(50'000));
    put(limits + offsetof(ParserLimits, lexer_states), size_t(250'000));
    put(limits + offsetof(ParserLimits, grammar_symbols), size_t(500'000));
    put(limits + offsetof(ParserLimits, precompute_large_lexemes), true);
    put(limits + offsetof(ParserLimits, verbose_errors), true);
    if (std::memcmp(written, expected, room) != 0)
        refuse(concat(api.get_version(), " has another layout than llguidance ", versions));
}

}  // namespace

void set_library(const std::string& path) {
    const std::lock_guard<std::mutex> lock(library_mutex);
    library_path = path;
}

const Api& load() {
    static std::optional<Api> loaded;
    const std::lock_guard<std::mutex> lock(library_mutex);
    if (!loaded) {
        const Api found = find_functions();
        check_version(found.get_version());
        check_layout(found);
        loaded = found;
    }
    return *loaded;
}

}  // namespace pagewheel::llguidance
