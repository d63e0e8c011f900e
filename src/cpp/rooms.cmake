# Rooms: folders of src/, each a library that sees only the rooms it may use (docs/design.md).
#
# Files include each other as "room/file.hpp". The include folder of a room is build/rooms/ROOM, where
# a link has the room's name. A target gets only those of the rooms that it uses, so a forbidden
# include is a file that is not found. tests/cpp links `links_ROOM` with all of a room's objects and
# the rooms that it uses, so a call that goes round the headers is an undefined symbol.

# Several files of a room are compiled as one, since the headers of OpenVINO and JSON are most of a
# file: a third of the time from nothing. Kernels have flags of their own and few headers. To compile
# the file that you change alone, -DCMAKE_UNITY_BUILD=OFF (presets have it).
#
# pagewheel_room(NAME [USES rooms...] [LIBRARIES targets...])
#
# The library pagewheel_NAME, of src/NAME. What it uses must be declared before it, so there is no
# cycle; whoever uses it sees that too. Appends NAME to the caller's `rooms`.
function(pagewheel_room name)
    cmake_parse_arguments(PARSE_ARGV 1 room "" "" "USES;LIBRARIES")
    set(folder ${CMAKE_CURRENT_SOURCE_DIR}/src/${name})
    set(include_folder ${PROJECT_BINARY_DIR}/rooms/${name})
    file(MAKE_DIRECTORY ${include_folder})
    file(CREATE_LINK ${folder} ${include_folder}/${name} SYMBOLIC)

    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${folder}/*.cpp)
    include(${folder}/room.cmake OPTIONAL) # may leave out some of `sources`, and set their options
    add_library(pagewheel_${name} STATIC ${sources})
    if(NOT DEFINED CMAKE_UNITY_BUILD AND NOT name STREQUAL "kernels")
        set_target_properties(pagewheel_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    endif()
    target_include_directories(pagewheel_${name}
                               PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/include ${include_folder})
    target_link_libraries(pagewheel_${name} PUBLIC ${room_LIBRARIES} PRIVATE pagewheel_options)
    foreach(used IN LISTS room_USES)
        if(NOT TARGET pagewheel_${used})
            message(FATAL_ERROR "The room ${name} uses ${used}, which is not declared before it.")
        endif()
        target_link_libraries(pagewheel_${name} PUBLIC pagewheel_${used})
    endforeach()
    set(rooms ${rooms} ${name} PARENT_SCOPE)
endfunction()
