# AMX's own instructions are assembly (tiles.hpp), so AVX-512's options will do.
include(${CMAKE_CURRENT_LIST_DIR}/../avx512/options.cmake)
