# Third-party libraries, all from the distribution. A folder's CMakeLists.txt links these targets:
#
#   Boost::headers                 Boost.Graph (header only)
#   Eigen3::Eigen                  linear algebra (header only)
#   fmt::fmt                       text
#   hwy::hwy                       Highway: vector instructions, chosen at run time
#   yaml-cpp::yaml-cpp             YAML
#   pugixml::pugixml               XML
#   nlohmann_json::nlohmann_json   JSON
#   CLI11::CLI11                   the command line
#   OpenSSL::Crypto                digests
#   ZLIB::ZLIB                     gzip
#   protobuf::libprotobuf          linked by rackrail_add_proto
#   gRPC::grpc++                   linked by rackrail_add_proto(... GRPC)
#   PkgConfig::SQLITE              the coordinator's state
#   Threads::Threads
#   Catch2::Catch2                 linked by rackrail_add_tests
# optional (ask `if(TARGET ...)`):
#   PkgConfig::CLP                 COIN-OR linear programming
#   benchmark::benchmark           linked by rackrail_add_bench
#   PkgConfig::SIMGRID             a peer, for tests and benchmarks that compare
#   PkgConfig::UCX                 see cmake/Features.cmake, as for CUDA and NCCL
#
# Their headers are system headers, so our warnings do not apply to them.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(Boost 1.74 REQUIRED)
find_package(Eigen3 3.4 REQUIRED NO_MODULE)
find_package(fmt REQUIRED)
find_package(hwy REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(pugixml REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(ZLIB REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)

# The name changed in yaml-cpp 0.8.
if(NOT TARGET yaml-cpp::yaml-cpp)
  add_library(yaml-cpp::yaml-cpp INTERFACE IMPORTED)
  target_link_libraries(yaml-cpp::yaml-cpp INTERFACE yaml-cpp)
endif()

pkg_check_modules(SQLITE REQUIRED QUIET IMPORTED_TARGET sqlite3)

option(RACKRAIL_CLP "Use COIN-OR Clp, which brings BLAS and LAPACK, where it is found" ON)
if(RACKRAIL_CLP)
  pkg_check_modules(CLP QUIET IMPORTED_TARGET clp)
endif()
if(NOT TARGET PkgConfig::CLP)
  message(STATUS "CLP: none; what needs a linear-programming solver is left out")
endif()

pkg_check_modules(SIMGRID QUIET IMPORTED_TARGET simgrid)
if(NOT SIMGRID_FOUND)
  message(STATUS "SimGrid: not found; comparisons with it are left out")
endif()

if(RACKRAIL_BUILD_TESTS)
  find_package(Catch2 2.13 REQUIRED)
endif()
if(RACKRAIL_BUILD_BENCH)
  find_package(benchmark QUIET)
  if(NOT benchmark_FOUND)
    message(STATUS "Google Benchmark: not found; there is no target 'bench'")
  endif()
endif()
