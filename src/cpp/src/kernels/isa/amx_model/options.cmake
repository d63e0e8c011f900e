include(${CMAKE_CURRENT_LIST_DIR}/../avx512/options.cmake)
