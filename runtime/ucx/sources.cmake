# Read by runtime/CMakeLists.txt; paths are relative to runtime/. The same two functions stand behind
# transports/factories.hpp with and without UCX.
if(TARGET PkgConfig::UCX)
  list(APPEND RACKRAIL_TRANSPORT_SOURCES ucx/context.cpp ucx/device_memory.cpp ucx/kind.cpp
    ucx/landings.cpp ucx/peers.cpp ucx/port.cpp ucx/rail_offers.cpp ucx/rail_search.cpp
    ucx/sealed_address.cpp ucx/ucx_transport.cpp ucx/wire.cpp)
  list(APPEND RACKRAIL_TRANSPORT_LIBRARIES PkgConfig::UCX)
else()
  list(APPEND RACKRAIL_TRANSPORT_SOURCES ucx/unavailable.cpp)
endif()
