// Prints the names of the instruction sets that this processor has, a line each: those that
// PAGEWHEEL_ISA alone chooses too.
#include <cstdio>

#include "kernels/isa.hpp"
#include "kernels/tile_permission.hpp"

int main() {
    using namespace pagewheel;
    if (processor_features().has_all({CpuFeature::amx_tile, CpuFeature::amx_bf16}) &&
        tiles_are_permitted())
        std::puts("amx");
    for (const Isa isa : available_isas()) std::puts(isa_name(isa));
}
