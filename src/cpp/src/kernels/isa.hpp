// Which instruction set the kernels use.
#pragma once

#include <string>

#include "kernels/cpu_features.hpp"

namespace pagewheel {

namespace kernels {
struct Kernels;
}

/// An entry of the table of instruction sets (isa.cpp). Whoever writes for another one adds a
/// folder to kernels/isa/ and an entry there; what is required is a set, not a rank.
struct IsaEntry {
    const char* name;
    bool by_default;  ///< it is taken without being asked for
    CpuFeatures required;
    /// Its kernels on a processor with these features, which are all that it requires and may be
    /// more. Code of that instruction set: to be called where the processor has it.
    kernels::Kernels (*make)(CpuFeatures features);
};

/// An instruction set that the kernels are written for.
class Isa {
public:
    /// Runs everywhere: the kernels as they are defined.
    static const Isa scalar;

    explicit constexpr Isa(const IsaEntry& entry) : m_entry(&entry) {}

    const char* name() const { return m_entry->name; }
    /// Made for this processor, which must have all that is required.
    const kernels::Kernels& kernels() const;
    const IsaEntry& entry() const { return *m_entry; }

    bool operator==(Isa other) const { return m_entry == other.m_entry; }
    bool operator!=(Isa other) const { return m_entry != other.m_entry; }

private:
    const IsaEntry* m_entry;
};

/// The first of the table of which the processor has all that is required. PAGEWHEEL_ISA=name, read
/// once, takes that one instead; a name that is none, or whose instructions the processor lacks,
/// throws InvalidArgument. Where the operating system refuses the use of AMX, which is asked
/// for only if AMX would be taken, it is the next one, and a warning says so.
Isa detected_isa();

/// Chooses without asking the operating system: `wanted` is empty or what PAGEWHEEL_ISA says.
Isa choose_isa(const std::string& wanted, CpuFeatures features);

/// What detected_isa() is and says, where `ask_for_tiles` answers for the operating system.
struct PermittedIsa {
    Isa isa;
    std::string warning;  // empty if nothing was refused
};
PermittedIsa choose_permitted_isa(const std::string& wanted, CpuFeatures features,
                                  bool (*ask_for_tiles)());

}  // namespace pagewheel
