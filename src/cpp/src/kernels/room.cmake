include(${CMAKE_CURRENT_LIST_DIR}/isa/isa.cmake)
pagewheel_set_isa_options(sources)
