// What the processor gives at best: operations a second of its products, bytes a second of reads.
//
//     peaks [BYTES]
//
// With BYTES, reads of no more a thread.
#include <cstdio>
#include <cstdlib>

#include "kernels/isa.hpp"
#include "peak_rates.hpp"

int main(int argc, char** argv) {
    using namespace pagewheel;
    const size_t most = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : size_t(-1);
    std::printf("kernels %s\n", detected_isa().name());
    for (const benchmark::PeakRate& rate : benchmark::peak_rates())
        std::printf("%s %.2f tera-operations a second\n", rate.instruction.c_str(), rate.tera);
    for (const benchmark::ReadRate& rate : benchmark::read_rates(most))
        std::printf("reads of %zu KB a thread %.0f GB/s\n", rate.bytes_of_thread >> 10,
                    rate.gigabytes);
}
