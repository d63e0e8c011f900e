# Gives the files of each folder here the compiler options of its instruction set. The folder's
# options.cmake, if there is one, sets
#   processors       CMAKE_SYSTEM_PROCESSOR must be one of these, or the folder is left out
#   options          of all its files
#   options_of_NAME  besides, of NAME.cpp
# kernels/isa.cpp chooses among them at run time, so that the binary is portable.
include(CheckCXXCompilerFlag)

# `name_of_list`: a variable with files, from which those of other processors are taken out.
function(pagewheel_set_isa_options name_of_list)
    file(GLOB files CONFIGURE_DEPENDS ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/*/options.cmake)
    foreach(file ${files})
        pagewheel_set_options_of_isa(${file} ${name_of_list})
    endforeach()
    set(${name_of_list} ${${name_of_list}} PARENT_SCOPE)
endfunction()

# One folder. A function of its own, so that no folder sees what another's options.cmake sets.
function(pagewheel_set_options_of_isa file name_of_list)
    cmake_path(GET file PARENT_PATH folder)
    set(processors ${CMAKE_SYSTEM_PROCESSOR})
    set(options "")
    include(${file})
    file(GLOB_RECURSE own CONFIGURE_DEPENDS ${folder}/*.cpp)
    if(NOT CMAKE_SYSTEM_PROCESSOR IN_LIST processors)
        list(REMOVE_ITEM ${name_of_list} ${own})
        set(${name_of_list} ${${name_of_list}} PARENT_SCOPE)
    endif()
    foreach(source ${own})
        cmake_path(GET source STEM name)
        set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
                                                         "${options};${options_of_${name}}")
    endforeach()
endfunction()
