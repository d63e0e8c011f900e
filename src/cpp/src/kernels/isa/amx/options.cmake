# AMX's own instructions are assembly (tiles.hpp), so AVX-512's options will do.
include(${CMAKE_CURRENT_LIST_DIR}/../avx512/options.cmake)
# Those of AVX512_FP16 are known to assemblers from binutils 2.38 on.
include(CheckCXXSourceCompiles)
check_cxx_source_compiles("int main() { asm volatile(\"vsubph %zmm0, %zmm1, %zmm2\"); }"
                          PAGEWHEEL_ASSEMBLES_FP16)
if(PAGEWHEEL_ASSEMBLES_FP16)
    list(APPEND options -DPAGEWHEEL_ASSEMBLES_FP16)
endif()
