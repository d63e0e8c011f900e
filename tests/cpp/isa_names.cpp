// Prints the names of the instruction sets that this processor has, a line each: the one that is
// taken by default, those after it, and those that PAGEWHEEL_ISA alone chooses.
#include <cstdio>
#include <string>

#include "kernels/isa.hpp"
#include "support/kernel_access.hpp"

int main() {
    using namespace pagewheel;
    for (const Isa isa : available_isas()) std::puts(isa.name());
    if (choose_isa("", processor_features()).name() == std::string("avx512") &&
        processor_features().has(CpuFeature::avx512_bf16))
        std::puts("amx_model");
}
