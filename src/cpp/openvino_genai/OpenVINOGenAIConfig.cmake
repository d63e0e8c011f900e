# pagewheel's own package is in the folder above.
include(CMakeFindDependencyMacro)
set(pagewheel_DIR "${CMAKE_CURRENT_LIST_DIR}/..")
find_dependency(pagewheel)
include("${CMAKE_CURRENT_LIST_DIR}/OpenVINOGenAITargets.cmake")
