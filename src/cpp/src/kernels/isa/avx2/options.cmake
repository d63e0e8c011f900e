set(processors x86_64 AMD64)
set(options -mavx2 -mfma -mf16c)
check_cxx_compiler_flag(-mavxvnni compiler_has_avx_vnni)
if(compiler_has_avx_vnni) # else the file is AVX2 without VNNI
    set(options_of_linear_vnni -mavxvnni)
endif()
