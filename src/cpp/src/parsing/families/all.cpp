// The families there are, in the order in which a chat template is compared with them. A new one is
// a file in this folder that defines <name>_family(), and a line here.
#include "base/check.hpp"
#include "pagewheel/errors.hpp"
#include "parsing/family.hpp"

// clang-format off
#define PAGEWHEEL_FAMILIES(FAMILY) \
    FAMILY(harmony)         \
    FAMILY(deepseek_v32)    \
    FAMILY(deepseek)        \
    FAMILY(mistral)         \
    FAMILY(functiongemma)   \
    FAMILY(gemma4)          \
    FAMILY(seed)            \
    FAMILY(qwen3_coder)     \
    FAMILY(glm)             \
    FAMILY(gigachat)        \
    FAMILY(apriel)          \
    FAMILY(minimax)         \
    FAMILY(qwen)            \
    FAMILY(granite)         \
    FAMILY(phi4)            \
    FAMILY(llama4_pythonic) \
    FAMILY(llama3_json)     \
    FAMILY(llama3_pythonic) \
    FAMILY(gemma)           \
    FAMILY(think)
// clang-format on

namespace pagewheel {

#define PAGEWHEEL_DECLARE(name) Family name##_family();
PAGEWHEEL_FAMILIES(PAGEWHEEL_DECLARE)

const std::vector<Family>& families() {
#define PAGEWHEEL_LIST(name) name##_family(),
    static const std::vector<Family> all{PAGEWHEEL_FAMILIES(PAGEWHEEL_LIST)};
    return all;
}

const Family& find_family(const std::string& name) {
    std::string names;
    for (const Family& family : families()) {
        if (family.name == name) return family;
        names += (names.empty() ? "" : ", ") + family.name;
    }
    throw InvalidArgument(concat("family is '", name, "'; allowed: ", names));
}

}  // namespace pagewheel
