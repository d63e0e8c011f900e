set(processors x86_64 AMD64)
# GCC 12 takes its own _mm512_undefined_ps() for a mistake.
set(options -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mfma -mf16c
            -Wno-maybe-uninitialized -Wno-uninitialized)
