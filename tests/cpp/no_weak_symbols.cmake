# Fails where an object file of an instruction set defines a weak symbol: an inline function or a
# template that other object files may define too. The linker keeps one copy for all, and the
# processor may lack the instructions of that one. DW.ref symbols are addresses, the same in each file.
#   cmake -D NM=nm -D OBJECTS=a.o,b.o -P no_weak_symbols.cmake
string(REPLACE "," ";" objects "${OBJECTS}")
if(NOT objects)
    message(FATAL_ERROR "no object files to look at")
endif()
foreach(object ${objects})
    execute_process(COMMAND ${NM} -C --defined-only ${object} OUTPUT_VARIABLE symbols
                    COMMAND_ERROR_IS_FATAL ANY)
    string(REGEX MATCHALL "[0-9a-f]+ [VWu] [^\n]*" weak "${symbols}")
    list(FILTER weak EXCLUDE REGEX " DW\\.ref\\.")
    foreach(symbol ${weak})
        message(SEND_ERROR "${object} defines a weak symbol: ${symbol}")
    endforeach()
endforeach()
