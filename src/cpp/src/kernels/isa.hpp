// Which instruction set the kernels use.
#pragma once

namespace pagewheel {

enum class Isa { scalar = 0, avx2 = 1, avx512 = 2 };

/// The best of what this processor has: avx2 means AVX2, FMA and F16C; avx512 means F, BW, DQ, VL
/// and VNNI besides. PAGEWHEEL_ISA=scalar|avx2|avx512, read once, takes a lower one; a value that
/// is none of these or that the processor lacks throws std::invalid_argument.
Isa detected_isa();
const char* isa_name(Isa isa);

/// Whether this processor has AVX-VNNI: AVX-512's integer products for those that lack the rest.
bool has_avx_vnni();

/// Whether this processor has AVX512_BF16 besides what Isa::avx512 means.
bool has_avx512_bf16();

}  // namespace pagewheel
