# The functions a folder's CMakeLists.txt is made of. Sources are always listed, never globbed.
#
#   rackrail_add_library(<folder> SOURCES a.cpp ... [PUBLIC target...] [PRIVATE target...])
#       The library of a folder: target rackrail_<folder>, alias rackrail::<folder>. A nested folder
#       'runtime/ucx' becomes rackrail::runtime_ucx. List .cpp files only. With no sources it is
#       header-only.
#   rackrail_add_executable(<name> SOURCES a.cpp ... [PRIVATE target...])
#       With no sources there is no target.
#   rackrail_add_proto(<target> PROTO <file> [GRPC] [LINK target...])
#       A static library of the code generated from one .proto, whose headers are included by the
#       path of the .proto from the root: "plan/plan.pb.h", "runtime/coordinator/x.grpc.pb.h".
#   rackrail_add_tests(<name> SOURCES a_test.cpp ... [LINK target...] [LABELS label...]
#                      [TIMEOUT seconds] [SERIAL] [SLOW | SLOW_CASES])
#       One Catch2 executable. Its labels are the folder below tests/ it is in (unit, property, ...) and
#       'fast' or 'slow'; the target unit_tests, slow_tests, ... builds all with that label.
#       TIMEOUT: ten times what it takes alone, at least (default: 600 s, for what takes a minute at most).
#       SERIAL: never run at the same time as another test (it measures time, or needs all cores).
#       SLOW: for 'make test-slow' only. SLOW_CASES: its cases tagged [slow] are; they become the test
#       <name>_slow, and <name> runs the others.
#       The label 'waits': it needs next to no processor time, so it runs beside the others.
#       The label 'threads': it runs under the thread sanitizer, too. The label 'sanitized': under the
#       address and undefined-behaviour sanitizers.
#   rackrail_add_script_test(<name> COMMAND ... [LABELS label...] [TIMEOUT seconds] [SERIAL]
#                            [SLOW | SLOW_CASES])
#       A test that is a program of its own; see scripts/run-tests for how its cases are counted. With
#       SLOW_CASES it runs twice, with 'fast' and 'slow' in the variable RACKRAIL_TESTS.
#   rackrail_add_bench(<name> SOURCES a_bench.cpp ... [LINK target...])
#       One Google Benchmark executable, built and run by 'make bench'.
#   rackrail_add_fuzzer(<name> SOURCES a_fuzz.cpp ... [LINK target...])
#       One libFuzzer executable (preset 'asan'), built with the target 'fuzzers'.
#   rackrail_registered(<out> <list>)
#       The names x in the lines RACKRAIL_REGISTER(x) of a list that C++ includes too, so that what is
#       registered there is also what is compiled. CMake runs again when the list changes.
#   rackrail_own_code(<target>)
#       Our include root and warnings, for a target made by hand.
#   rackrail_bundled(<target>)
#       The executable may lie in the folder that scripts/gpu-bundle makes: it, and the libraries that
#       it loads, look for libraries in ../lib first.
include_guard()

# All code made from .proto files: what clang-tidy needs to have before it reads ours.
add_custom_target(generated_sources)

function(rackrail_own_code target)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:rackrail_options>)
  get_target_property(type ${target} TYPE)
  set(visibility PUBLIC)
  if(type STREQUAL "EXECUTABLE")
    set(visibility PRIVATE)
  endif()
  target_include_directories(${target} ${visibility} "${PROJECT_SOURCE_DIR}")
  target_include_directories(${target} SYSTEM ${visibility} "${RACKRAIL_GENERATED_DIR}")
endfunction()

# An RPATH and no RUNPATH, which would not count for what libraries ask for.
function(rackrail_bundled target)
  set_target_properties(${target} PROPERTIES BUILD_RPATH "\$ORIGIN/../lib")
  target_link_options(${target} PRIVATE LINKER:--disable-new-dtags)
endfunction()

function(rackrail_reject_unknown function)
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "${function}: unknown argument '${ARG_UNPARSED_ARGUMENTS}'")
  endif()
endfunction()

function(rackrail_registered out list)
  cmake_path(ABSOLUTE_PATH list BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${list}")
  file(STRINGS "${list}" lines)
  set(names)
  foreach(line IN LISTS lines)
    if(line MATCHES "^RACKRAIL_REGISTER\\(([a-z][a-z0-9_]*)\\)$")
      list(APPEND names "${CMAKE_MATCH_1}")
    elseif(NOT line MATCHES "^(//.*)?$")
      message(FATAL_ERROR "${list}: found '${line}', expected RACKRAIL_REGISTER(name)")
    endif()
  endforeach()
  set(${out} "${names}" PARENT_SCOPE)
endfunction()

function(rackrail_add_library folder)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "SOURCES;PUBLIC;PRIVATE")
  rackrail_reject_unknown(rackrail_add_library)
  string(REPLACE "/" "_" name "${folder}")
  set(target rackrail_${name})
  if(ARG_SOURCES)
    add_library(${target} STATIC ${ARG_SOURCES})
    rackrail_own_code(${target})
    # Who brings another registry must not get this one along with what shares its object file.
    set(registries ${ARG_SOURCES})
    list(FILTER registries INCLUDE REGEX "(^|/)registry\\.cpp$")
    set_source_files_properties(${registries} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    target_link_libraries(${target} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  else()
    add_library(${target} INTERFACE)
    target_include_directories(${target} INTERFACE "${PROJECT_SOURCE_DIR}")
    target_include_directories(${target} SYSTEM INTERFACE "${RACKRAIL_GENERATED_DIR}")
    target_link_libraries(${target} INTERFACE ${ARG_PUBLIC})
  endif()
  add_library(rackrail::${name} ALIAS ${target})
endfunction()

function(rackrail_add_executable name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "SOURCES;PRIVATE")
  rackrail_reject_unknown(rackrail_add_executable)
  if(ARG_SOURCES)
    add_executable(${name} ${ARG_SOURCES})
    rackrail_own_code(${name})
    target_link_libraries(${name} PRIVATE ${ARG_PRIVATE})
  endif()
endfunction()

function(rackrail_add_proto target)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "GRPC" "PROTO" "LINK")
  rackrail_reject_unknown(rackrail_add_proto)
  cmake_path(ABSOLUTE_PATH ARG_PROTO BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE)
  cmake_path(RELATIVE_PATH ARG_PROTO BASE_DIRECTORY "${PROJECT_SOURCE_DIR}" OUTPUT_VARIABLE path)
  cmake_path(REMOVE_EXTENSION path LAST_ONLY OUTPUT_VARIABLE stem)

  set(options "--proto_path=${PROJECT_SOURCE_DIR}" "--cpp_out=${RACKRAIL_GENERATED_DIR}")
  set(sources "${RACKRAIL_GENERATED_DIR}/${stem}.pb.cc")
  set(headers "${RACKRAIL_GENERATED_DIR}/${stem}.pb.h")
  set(needs "${ARG_PROTO}" protobuf::protoc)
  if(ARG_GRPC)
    list(APPEND options "--grpc_out=${RACKRAIL_GENERATED_DIR}"
         "--plugin=protoc-gen-grpc=$<TARGET_FILE:gRPC::grpc_cpp_plugin>")
    list(APPEND sources "${RACKRAIL_GENERATED_DIR}/${stem}.grpc.pb.cc")
    list(APPEND headers "${RACKRAIL_GENERATED_DIR}/${stem}.grpc.pb.h")
    list(APPEND needs gRPC::grpc_cpp_plugin)
  endif()
  add_custom_command(
    OUTPUT ${sources} ${headers}
    COMMAND protobuf::protoc ${options} "${path}"
    DEPENDS ${needs}
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
    COMMENT "Generating ${stem}.pb.h"
    VERBATIM)

  add_custom_target(${target}_sources DEPENDS ${sources} ${headers})
  add_dependencies(generated_sources ${target}_sources)

  add_library(${target} STATIC ${sources} ${headers})
  add_dependencies(${target} ${target}_sources)
  target_compile_options(${target} PRIVATE -w)
  target_include_directories(${target} SYSTEM PUBLIC "${RACKRAIL_GENERATED_DIR}")
  target_link_libraries(${target} PUBLIC protobuf::libprotobuf ${ARG_LINK})
  if(ARG_GRPC)
    target_link_libraries(${target} PUBLIC gRPC::grpc++)
  endif()
endfunction()

# Sets what ctest and scripts/run-tests know about a test.
function(rackrail_describe_test name kind speed)
  cmake_parse_arguments(PARSE_ARGV 3 ARG "SERIAL" "TIMEOUT;CASES" "LABELS")
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=")
    math(EXPR ARG_TIMEOUT "4 * ${ARG_TIMEOUT}")
  endif()
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY "${PROJECT_SOURCE_DIR}/tests"
             OUTPUT_VARIABLE place)
  string(REGEX REPLACE "/.*" "" group "${place}")
  if(group MATCHES "^[.]*$")
    set(group structure)
  endif()
  set(support "${PROJECT_SOURCE_DIR}/tests/support")
  set(environment
    "RACKRAIL_SOURCE_DIR=${PROJECT_SOURCE_DIR}"
    "RACKRAIL_TESTS=${ARG_CASES}"
    "UBSAN_OPTIONS=print_stacktrace=1"
    "LSAN_OPTIONS=suppressions=${support}/lsan.supp:print_suppressions=0"
    # Without its search for lock cycles: it crashes on the mutexes of gRPC.
    "TSAN_OPTIONS=suppressions=${support}/tsan.supp:halt_on_error=1:detect_deadlocks=0")
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=thread")
    # UCX hooks into the C library where threads end and the sanitizer has let go of them.
    list(APPEND environment "UCX_MEM_EVENTS=no")
  endif()
  if(RACKRAIL_HAVE_CUDA)
    # The driver wants addresses that the address sanitizer keeps for itself.
    list(APPEND environment "ASAN_OPTIONS=protect_shadow_gap=0")
  endif()
  if(TARGET rackrail)
    list(APPEND environment "RACKRAIL_COMMAND=$<TARGET_FILE:rackrail>")
  endif()
  set_tests_properties(${name} PROPERTIES
    TIMEOUT ${ARG_TIMEOUT}
    LABELS "${group};${kind};${speed};${ARG_LABELS}"
    SKIP_RETURN_CODE 77
    RUN_SERIAL "${ARG_SERIAL}"
    ENVIRONMENT "${environment}")
  foreach(label IN ITEMS ${group} ${speed} ${ARG_LABELS})
    if(NOT TARGET ${label}_tests)
      add_custom_target(${label}_tests)
    endif()
    if(TARGET ${name})
      add_dependencies(${label}_tests ${name})
    endif()
    if(group STREQUAL "integration" AND TARGET rackrail)
      add_dependencies(${label}_tests rackrail)
    endif()
  endforeach()
endfunction()

# 'fast', 'slow' or both: the parts of a test, by its SLOW and SLOW_CASES.
macro(rackrail_speeds_of_test)
  set(speeds fast)
  if(ARG_SLOW)
    set(speeds slow)
  elseif(ARG_SLOW_CASES)
    set(speeds fast slow)
  endif()
  set(serial)
  if(ARG_SERIAL)
    set(serial SERIAL)
  endif()
endmacro()

function(rackrail_add_tests name)
  if(NOT RACKRAIL_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 ARG "SERIAL;SLOW;SLOW_CASES" "TIMEOUT" "SOURCES;LINK;LABELS")
  rackrail_reject_unknown(rackrail_add_tests)
  if(NOT ARG_SOURCES)
    return()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  rackrail_own_code(${name})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} rackrail::test_support)
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin/tests")
  if(NOT name STREQUAL "support_test")
    target_precompile_headers(${name} REUSE_FROM support_test)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Lets ccache see which precompiled header an object was made with.
    target_compile_options(${name} PRIVATE -fpch-preprocess)
  endif()

  rackrail_speeds_of_test()
  foreach(speed IN LISTS speeds)
    set(cases)
    set(suffix)
    if(ARG_SLOW_CASES)
      set(cases "~[slow]")
    endif()
    if(ARG_SLOW_CASES AND speed STREQUAL "slow")
      set(cases "[slow]")
      set(suffix _slow)
    endif()
    add_test(NAME ${name}${suffix} COMMAND ${name} ${cases})
    rackrail_describe_test(${name}${suffix} catch2 ${speed} ${serial} CASES all
                           TIMEOUT ${ARG_TIMEOUT} LABELS ${ARG_LABELS})
    add_dependencies(${speed}_tests ${name})
  endforeach()
endfunction()

function(rackrail_add_script_test name)
  if(NOT RACKRAIL_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 ARG "SERIAL;SLOW;SLOW_CASES" "TIMEOUT" "COMMAND;LABELS")
  rackrail_reject_unknown(rackrail_add_script_test)
  rackrail_speeds_of_test()
  foreach(speed IN LISTS speeds)
    set(suffix)
    set(cases all)
    if(ARG_SLOW_CASES)
      set(cases ${speed})
    endif()
    if(ARG_SLOW_CASES AND speed STREQUAL "slow")
      set(suffix _slow)
    endif()
    add_test(NAME ${name}${suffix} COMMAND ${ARG_COMMAND} WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}")
    rackrail_describe_test(${name}${suffix} script ${speed} ${serial} CASES ${cases}
                           TIMEOUT ${ARG_TIMEOUT} LABELS ${ARG_LABELS})
  endforeach()
endfunction()

function(rackrail_add_bench name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "SOURCES;LINK")
  rackrail_reject_unknown(rackrail_add_bench)
  if(NOT ARG_SOURCES OR NOT TARGET benchmark::benchmark)
    return()
  endif()
  add_executable(${name} EXCLUDE_FROM_ALL ${ARG_SOURCES})
  rackrail_own_code(${name})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} benchmark::benchmark)
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin/bench"
    UNITY_BUILD OFF)  # several benchmarks have helpers of one name
  add_dependencies(bench ${name})
endfunction()

function(rackrail_add_fuzzer name)
  if(NOT RACKRAIL_BUILD_FUZZERS)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "SOURCES;LINK")
  rackrail_reject_unknown(rackrail_add_fuzzer)
  add_executable(${name} EXCLUDE_FROM_ALL ${ARG_SOURCES})
  rackrail_own_code(${name})
  target_link_libraries(${name} PRIVATE ${ARG_LINK})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin/fuzz")
  if(NOT TARGET fuzzers)
    add_custom_target(fuzzers)
  endif()
  add_dependencies(fuzzers ${name})
endfunction()
