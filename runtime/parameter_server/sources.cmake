# Read by runtime/CMakeLists.txt; paths are relative to runtime/.
set(RACKRAIL_PARAMETER_SERVER_SOURCES
  parameter_server/parameter_exchange.cpp
  parameter_server/parameter_shard.cpp
  parameter_server/served_parts.cpp)
