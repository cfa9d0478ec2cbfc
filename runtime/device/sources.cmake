# Read by runtime/CMakeLists.txt; paths are relative to runtime/.
set(RACKRAIL_DEVICE_SOURCES
  device/device_program.cpp
  device/fused_sums.cpp
  device/stage_agreement.cpp
  device/stages.cpp)
