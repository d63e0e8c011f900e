#include "grammar/llguidance_api.hpp"

#include <dlfcn.h>

#include <mutex>

#include "base/check.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel::llguidance {
namespace {

std::mutex library_mutex;
std::string library_path;

// Each function: its type is that of the member with its name.
#define PAGEWHEEL_LLGUIDANCE_FUNCTIONS(FUNCTION) \
    FUNCTION(get_version)                        \
    FUNCTION(new_tokenizer_v2)                   \
    FUNCTION(free_tokenizer)                     \
    FUNCTION(new_matcher)                        \
    FUNCTION(clone_matcher)                      \
    FUNCTION(free_matcher)                       \
    FUNCTION(matcher_get_error)                  \
    FUNCTION(matcher_get_mask_byte_size)         \
    FUNCTION(matcher_compute_mask_into)          \
    FUNCTION(matcher_consume_token)              \
    FUNCTION(matcher_validate_tokens)            \
    FUNCTION(matcher_rollback)                   \
    FUNCTION(matcher_compute_ff_tokens)          \
    FUNCTION(matcher_is_accepting)               \
    FUNCTION(matcher_is_stopped)                 \
    FUNCTION(matcher_get_cancellation_handle)    \
    FUNCTION(matcher_is_cancelled)               \
    FUNCTION(cancel)                             \
    FUNCTION(free_cancellation_handle)

std::string what_to_install() {
    return concat("Install it: pip install llguidance==", version);
}

#ifdef PAGEWHEEL_LINKS_LLGUIDANCE

// Linked under these names. Their types do not matter: each is cast to its member's.
extern "C" {
#define PAGEWHEEL_DECLARE(name) void llg_##name();
PAGEWHEEL_LLGUIDANCE_FUNCTIONS(PAGEWHEEL_DECLARE)
#undef PAGEWHEEL_DECLARE
}

Api find_functions() {
    Api api;
#define PAGEWHEEL_FIND(name) api.name = reinterpret_cast<decltype(Api::name)>(&llg_##name);
    PAGEWHEEL_LLGUIDANCE_FUNCTIONS(PAGEWHEEL_FIND)
#undef PAGEWHEEL_FIND
    return api;
}

#else

void* find_function(void* library, const std::string& name) {
    void* function = dlsym(library, name.c_str());
    if (!function)
        throw Error(concat(library_path, " has no ", name, ": it is no llguidance ", version, ". ",
                           what_to_install()));
    return function;
}

Api find_functions() {
    if (library_path.empty())
        throw Error(
            concat("Structured output needs llguidance ", version, ". ", what_to_install()));
    void* library = dlopen(library_path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library)
        throw Error(concat("cannot load llguidance: ", dlerror(), ". ", what_to_install(),
                           "; its library can be loaded only in Python processes"));
    Api api;
#define PAGEWHEEL_FIND(name) \
    api.name = reinterpret_cast<decltype(Api::name)>(find_function(library, "llg_" #name));
    PAGEWHEEL_LLGUIDANCE_FUNCTIONS(PAGEWHEEL_FIND)
#undef PAGEWHEEL_FIND
    return api;
}

#endif
#undef PAGEWHEEL_LLGUIDANCE_FUNCTIONS

/// get_version() gives "llguidance@1.9.1 derivre@0.3.13".
void check_version(const std::string& found) {
    const std::string wanted = concat("llguidance@", version, " ");
    if (found.compare(0, wanted.size(), wanted) != 0)
        throw Error(concat("this is ", found, ", and pagewheel needs llguidance ", version, ". ",
                           what_to_install()));
}

}  // namespace

void set_library(const std::string& path) {
    const std::lock_guard<std::mutex> lock(library_mutex);
    library_path = path;
}

const Api& load() {
    static Api loaded;
    static bool is_loaded = false;
    const std::lock_guard<std::mutex> lock(library_mutex);
    if (!is_loaded) {
        const Api found = find_functions();
        check_version(found.get_version());
        loaded = found;
        is_loaded = true;
    }
    return loaded;
}

}  // namespace pagewheel::llguidance
