# Read by runtime/CMakeLists.txt; paths are relative to runtime/. NCCL is loaded when the program
# runs, so that only the check of its declarations needs its header.
set(RACKRAIL_NCCL_SOURCES
  nccl/communicator.cpp
  nccl/library.cpp)
set(RACKRAIL_NCCL_LIBRARIES ${CMAKE_DL_LIBS})
if(TARGET rackrail::nccl)
  add_library(rackrail_nccl_abi OBJECT nccl/abi_check.cpp)
  rackrail_own_code(rackrail_nccl_abi)
  target_link_libraries(rackrail_nccl_abi PRIVATE rackrail::nccl)
endif()
