# One interface target with what every target of this project is compiled with. Nothing global.
add_library(cairn_settings INTERFACE)
target_compile_features(cairn_settings INTERFACE cxx_std_20)
target_include_directories(cairn_settings INTERFACE ${PROJECT_SOURCE_DIR}
                                                    ${PROJECT_SOURCE_DIR}/include)
# -ffp-contract=off: a product and a sum round twice everywhere, so results do not depend on whether
# the compiler finds a fused multiply-add.
target_compile_options(cairn_settings INTERFACE -Wall -Wextra -Wpedantic -ffp-contract=off
                                                -fvisibility=hidden
                                                $<$<COMPILE_LANGUAGE:CXX>:-fvisibility-inlines-hidden>)
# What every x86 machine since 2009 has. More is chosen at run time (kernels/cpu/simd.h).
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  target_compile_options(cairn_settings INTERFACE -march=x86-64-v2)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees overlapping copies in `"literal" + std::string` (its bug 105329).
  target_compile_options(cairn_settings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
if(CAIRN_WERROR)
  target_compile_options(cairn_settings INTERFACE -Werror)
endif()
if(CAIRN_SANITIZE)
  target_compile_options(cairn_settings INTERFACE -fsanitize=${CAIRN_SANITIZE}
                                                  -fno-omit-frame-pointer)
  target_link_options(cairn_settings INTERFACE -fsanitize=${CAIRN_SANITIZE})
endif()

# cairn_library(name sources...): a static, position-independent part of libcairn.
function(cairn_library name)
  add_library(${name} STATIC ${ARGN})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_EXTENSIONS OFF)
  target_link_libraries(${name} PRIVATE cairn_settings)
endfunction()
