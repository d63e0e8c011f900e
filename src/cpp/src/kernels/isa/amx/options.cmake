# Without options: the instructions are assembly (tiles.hpp), the rest is AVX-512's.
set(processors x86_64 AMD64)
