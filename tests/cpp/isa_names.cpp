// Prints the names of the instruction sets that this processor has, a line each.
#include <cstdio>

#include "kernels/isa.hpp"

int main() {
    for (const pagewheel::Isa isa : pagewheel::available_isas())
        std::puts(pagewheel::isa_name(isa));
}
