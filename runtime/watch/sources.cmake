# Read by runtime/CMakeLists.txt; paths are relative to runtime/.
set(RACKRAIL_WATCH_SOURCES
  watch/pair_network.cpp
  watch/slow_detector.cpp
  watch/slow_ranks.cpp)
