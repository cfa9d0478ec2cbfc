# How our code is compiled: standard, warnings, linker, compiler cache.
include(CheckLinkerFlag)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

# The target that carries the flags of our own code. Third-party and generated code never sees it.
# No -march here: one binary must run on every machine of a cluster, so Highway compiles SIMD code for
# several instruction sets, and which one runs is decided at run time.
set(warnings
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wcast-align
  -Wextra-semi -Wformat=2 -Wundef -Wimplicit-fallthrough -Wunused
  # Designated initialisers name what differs from the defaults; leaving the rest out is the point.
  -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND warnings -Wsuggest-override -Wlogical-op -Wduplicated-cond -Wduplicated-branches)
  # GCC 12 reports it falsely inside std::string once that is inlined (PR 105329).
  list(APPEND warnings -Wno-restrict)
endif()
if(RACKRAIL_WERROR)
  list(APPEND warnings -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # These come from flow analysis after inlining, so they depend on optimisation and have false
  # positives: shown to developers, but no reason to stop a build. Who installs a release can do nothing
  # about them. The code that a sanitizer adds confuses them altogether.
  foreach(name IN ITEMS maybe-uninitialized uninitialized array-bounds stringop-overflow stringop-overread
                        dangling-pointer free-nonheap-object)
    if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=")
      list(APPEND warnings -Wno-${name})
    else()
      list(APPEND warnings -Wno-error=${name} $<$<CONFIG:RelWithDebInfo>:-Wno-${name}>)
    endif()
  endforeach()
endif()
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # A unity build makes several files one, so these see names that no file has in common; other
  # presets still look for them.
  list(APPEND warnings -Wno-shadow -Wno-subobject-linkage)
endif()
add_library(rackrail_options INTERFACE)
target_compile_options(rackrail_options INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:${warnings}>"
  # Same simulation on every machine: no fused multiply-add unless it is written in the code.
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>
  # Nobody replaces our functions at load time, so the compiler may inline across them.
  $<$<COMPILE_LANGUAGE:CXX>:-fno-semantic-interposition>
  # Fewer warnings, since nvcc has the host compiler look at code that it made itself.
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>)

# A faster linker, if there is one: the tests are many executables.
foreach(linker IN ITEMS mold lld)
  string(TOUPPER "RACKRAIL_LINKER_${linker}" linker_works)
  check_linker_flag(CXX "-fuse-ld=${linker}" ${linker_works})
  if(${linker_works})
    add_link_options("-fuse-ld=${linker}")
    break()
  endif()
endforeach()

# ccache, if there is one. Paths are taken relative to the repository so that two build folders share
# their results, and precompiled headers need the sloppiness named here.
find_program(RACKRAIL_CCACHE ccache)
mark_as_advanced(RACKRAIL_CCACHE)
if(RACKRAIL_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
    "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1
    "CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime"
    "${RACKRAIL_CCACHE}")
endif()
