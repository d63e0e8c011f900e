#include "kernels/isa.hpp"

#include <array>
#include <atomic>
#include <cstdlib>
#include <string>

#include "base/check.hpp"
#include "base/log.hpp"
#include "kernels/cpu_features.hpp"
#include "kernels/kernels.hpp"

// The instruction sets, the best first: ISA(name, by default, what it requires...) for the folder
// kernels/isa/name, which gives name::kernels(). The scalar one comes after them. All but a model,
// which is for measuring another one's answers, are taken by default.
#if defined(__x86_64__)
#define PAGEWHEEL_ISAS(ISA)                                                             \
    ISA(amx, true, Feature::avx2, Feature::fma, Feature::f16c, Feature::avx512f,        \
        Feature::avx512bw, Feature::avx512dq, Feature::avx512vl, Feature::avx512_vnni,  \
        Feature::avx512_bf16, Feature::amx_tile, Feature::amx_bf16)                     \
    ISA(amx_model, false, Feature::avx2, Feature::fma, Feature::f16c, Feature::avx512f, \
        Feature::avx512bw, Feature::avx512dq, Feature::avx512vl, Feature::avx512_vnni,  \
        Feature::avx512_bf16)                                                           \
    ISA(avx512, true, Feature::avx2, Feature::fma, Feature::f16c, Feature::avx512f,     \
        Feature::avx512bw, Feature::avx512dq, Feature::avx512vl, Feature::avx512_vnni)  \
    ISA(avx2, true, Feature::avx2, Feature::fma, Feature::f16c)
#else
#define PAGEWHEEL_ISAS(ISA)
#endif

namespace pagewheel {

#define PAGEWHEEL_DECLARE(name, ...)       \
    namespace kernels::name {              \
    Kernels kernels(CpuFeatures features); \
    }
PAGEWHEEL_ISAS(PAGEWHEEL_DECLARE)
PAGEWHEEL_DECLARE(scalar, )
#undef PAGEWHEEL_DECLARE

namespace {

using Feature = CpuFeature;

#define PAGEWHEEL_ENTRY(name, by_default, ...) \
    {#name, by_default, {__VA_ARGS__}, kernels::name::kernels},
constexpr IsaEntry table[] = {PAGEWHEEL_ISAS(PAGEWHEEL_ENTRY) PAGEWHEEL_ENTRY(scalar, true, )};
#undef PAGEWHEEL_ENTRY

/// The names of all instruction sets, as a sentence lists them.
std::string names() {
    std::string text;
    for (size_t i = std::size(table); i-- > 0;)
        text += (text.empty() ? "" : i == 0 ? " and " : ", ") + std::string(table[i].name);
    return text;
}

}  // namespace

const Isa Isa::scalar(table[std::size(table) - 1]);

const kernels::Kernels& Isa::kernels() const {
    static const auto all = [] {
        std::array<kernels::Kernels, std::size(table)> made{};
        const CpuFeatures features = processor_features();
        for (size_t i = 0; i < made.size(); ++i)
            if (features.has_all(table[i].required)) made[i] = table[i].make(features);
        return made;
    }();
    return all[size_t(m_entry - table)];
}

Isa choose_isa(const std::string& wanted, CpuFeatures features) {
    const IsaEntry* best = table;
    while (!best->by_default || !features.has_all(best->required)) ++best;
    if (wanted.empty()) return Isa(*best);
    for (const IsaEntry& entry : table) {
        if (wanted != entry.name) continue;
        check_argument(features.has_all(entry.required), "PAGEWHEEL_ISA=", wanted,
                       ": this processor's best is ", best->name);
        return Isa(entry);
    }
    refuse_argument("PAGEWHEEL_ISA=", wanted, ": allowed are ", names());
}

PermittedIsa choose_permitted_isa(const std::string& wanted, CpuFeatures features,
                                  bool (*ask_for_tiles)()) {
    const Isa best = choose_isa(wanted, features);
    if (!best.entry().required.has(Feature::amx_tile) || ask_for_tiles()) return {best, ""};
    const Isa next = choose_isa("", features.without({Feature::amx_tile}));
    return {next, concat("the operating system refuses this process AMX's tiles: ", next.name(),
                         " is used instead of ", best.name())};
}

Isa detected_isa() {
    static const PermittedIsa chosen = [] {
        const char* wanted = std::getenv("PAGEWHEEL_ISA");
        return choose_permitted_isa(wanted ? wanted : "", processor_features(),
                                    tiles_are_permitted);
    }();
    // Out here, where the log's callback may ask for the instruction set again.
    static std::atomic<bool> said{false};
    if (!chosen.warning.empty() && !said.exchange(true)) log(LogLevel::WARNING, chosen.warning);
    return chosen.isa;
}

const kernels::LogitsKernels& kernels::logits_kernels(Isa isa) {
    return isa.kernels().logits;
}

}  // namespace pagewheel
