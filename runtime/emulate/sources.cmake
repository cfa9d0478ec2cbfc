# Read by runtime/CMakeLists.txt; paths are relative to runtime/.
set(RACKRAIL_EMULATE_SOURCES
  emulate/commands.cpp
  emulate/contraction.cpp
  emulate/emulated_plan.cpp
  emulate/leftovers.cpp
  emulate/link_check.cpp
  emulate/namespaces.cpp
  emulate/network.cpp
  emulate/network_plan.cpp
  emulate/rank_commands.cpp
  emulate/stream.cpp
  emulate/tools.cpp)
