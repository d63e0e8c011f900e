// What tests ask of the kernels and no other caller does.
#pragma once

#include <cstdlib>
#include <vector>

#include "kernels/kernels.hpp"

namespace pagewheel {

/// The instruction sets whose kernels a test runs: the one that PAGEWHEEL_ISA names, or
/// detected_isa() and those after it in the table that this processor has. The last is then the
/// scalar one.
inline std::vector<Isa> available_isas() {
    if (const char* named = std::getenv("PAGEWHEEL_ISA"); named && *named) return {detected_isa()};
    std::vector<Isa> isas;
    const CpuFeatures features = processor_features();
    for (const IsaEntry* entry = &detected_isa().entry();; ++entry) {
        if (features.has_all(entry->required)) isas.emplace_back(*entry);
        if (entry == &Isa::scalar.entry()) return isas;
    }
}

namespace kernels {

/// Writes the keys and values of a call's new tokens.
inline void write_keys_values(const CacheLayout& layout, const AttentionBatch& batch, Isa isa) {
    const AttentionKernels& kernels = isa.kernels().attention;
    const auto write =
        kernels.has_tiles() ? kernels.decode(layout.format).write : write_tokens_reference;
    for (size_t s = 0; s < batch.tables.num_sequences(); ++s)
        write(layout, batch, s, size_t(batch.tables.written_begins[s]),
              size_t(batch.tables.written_begins[s + 1]));
}

}  // namespace kernels
}  // namespace pagewheel
