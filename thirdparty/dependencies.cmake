# Finds what pagewheel builds against. All of it comes from PyPI packages of one Python interpreter
# (`pip install openvino nlohmann-json`), unless -DOpenVINO_DIR or -Dnlohmann_json_DIR say otherwise.
find_package(Python3 REQUIRED COMPONENTS Interpreter)

# The folder of an installed Python package, without importing it.
function(pagewheel_python_package name result)
    execute_process(
        COMMAND ${Python3_EXECUTABLE} -c
                "import importlib.util as u; s = u.find_spec('${name}'); print(s.submodule_search_locations[0] if s else '')"
        OUTPUT_VARIABLE folder
        OUTPUT_STRIP_TRAILING_WHITESPACE)
    set(${result} "${folder}" PARENT_SCOPE)
endfunction()

if(NOT OpenVINO_DIR)
    pagewheel_python_package(openvino openvino_package)
    if(NOT openvino_package)
        message(FATAL_ERROR "OpenVINO was not found for ${Python3_EXECUTABLE}. "
                            "Run: ${Python3_EXECUTABLE} -m pip install 'openvino==2026.4.*' "
                            "'openvino-tokenizers==2026.4.*' nlohmann-json, or pass -DOpenVINO_DIR=...")
    endif()
    set(OpenVINO_DIR "${openvino_package}/cmake" CACHE PATH "Folder of OpenVINOConfig.cmake")
endif()
find_package(OpenVINO 2026.4 REQUIRED COMPONENTS Runtime)
# oneTBB from OpenVINO's own package: kernels must run in OpenVINO's threads.
find_package(TBB REQUIRED CONFIG HINTS ${OpenVINO_DIR})

find_package(nlohmann_json 3.11 QUIET)
if(NOT nlohmann_json_FOUND)
    pagewheel_python_package(nlohmann_json nlohmann_json_package)
    if(NOT nlohmann_json_package)
        message(FATAL_ERROR "nlohmann-json was not found. Run: ${Python3_EXECUTABLE} -m pip install "
                            "nlohmann-json, or pass -Dnlohmann_json_DIR=...")
    endif()
    add_library(nlohmann_json INTERFACE)
    target_include_directories(nlohmann_json SYSTEM INTERFACE "${nlohmann_json_package}/include")
    add_library(nlohmann_json::nlohmann_json ALIAS nlohmann_json)
endif()

find_package(Threads REQUIRED)
