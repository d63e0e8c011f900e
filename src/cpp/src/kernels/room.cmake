# Gives the files of each instruction set's folder in isa/ its compiler options, and leaves those of
# other processors out of `sources`. isa.cpp chooses among them at run time, so that the binary is
# portable.
include(CheckCXXCompilerFlag)
include(CheckCXXSourceCompiles)

set(options_avx2 -mavx2 -mfma -mf16c)
# GCC 12 takes its own _mm512_undefined_ps() for a mistake.
set(options_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mfma -mf16c
                   -Wno-maybe-uninitialized -Wno-uninitialized)
set(options_amx_model ${options_avx512})
# AMX's own instructions and those of AVX512_FP16 are assembly, so AVX-512's options will do. The
# latter are known to assemblers from binutils 2.38 on.
check_cxx_source_compiles("int main() { asm volatile(\"vsubph %zmm0, %zmm1, %zmm2\"); }"
                          PAGEWHEEL_ASSEMBLES_FP16)
set(options_amx ${options_avx512})
if(PAGEWHEEL_ASSEMBLES_FP16)
    list(APPEND options_amx -DPAGEWHEEL_ASSEMBLES_FP16)
endif()

foreach(isa avx2 avx512 amx amx_model)
    set(own ${sources})
    list(FILTER own INCLUDE REGEX "/kernels/isa/${isa}/")
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
        set_source_files_properties(${own} PROPERTIES COMPILE_OPTIONS "${options_${isa}}")
    else()
        list(REMOVE_ITEM sources ${own})
    endif()
endforeach()
check_cxx_compiler_flag(-mavxvnni compiler_has_avx_vnni)
if(compiler_has_avx_vnni) # else the file is AVX2 without VNNI
    set_source_files_properties(${folder}/isa/avx2/linear_vnni.cpp
                                PROPERTIES COMPILE_OPTIONS "${options_avx2};-mavxvnni")
endif()
# With checks of addresses as calls GCC compiles this, the largest, in two thirds of the time.
if(PAGEWHEEL_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set_property(SOURCE ${folder}/isa/avx512/linear.cpp APPEND
                 PROPERTY COMPILE_OPTIONS "--param=asan-instrumentation-with-call-threshold=0")
endif()
