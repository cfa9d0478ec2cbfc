# Writes base/build_config.hpp below ${CMAKE_BINARY_DIR}/generated: what this build is and has.
set(RACKRAIL_GENERATED_DIR "${CMAKE_BINARY_DIR}/generated")

set(RACKRAIL_GIT_REVISION unknown)
find_package(Git QUIET)
if(Git_FOUND)
  execute_process(COMMAND "${GIT_EXECUTABLE}" rev-parse --short=12 HEAD
                  WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
                  OUTPUT_VARIABLE git_revision OUTPUT_STRIP_TRAILING_WHITESPACE
                  RESULT_VARIABLE git_status ERROR_QUIET)
  if(git_status EQUAL 0 AND git_revision MATCHES "^[0-9a-f]+$")
    set(RACKRAIL_GIT_REVISION "${git_revision}")
  endif()
endif()

configure_file("${PROJECT_SOURCE_DIR}/cmake/build_config.hpp.in"
               "${RACKRAIL_GENERATED_DIR}/base/build_config.hpp" @ONLY)
