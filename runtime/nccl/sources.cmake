# Read by runtime/CMakeLists.txt; paths are relative to runtime/. NCCL is loaded when the program
# runs, so that only the check of its declarations needs its header.
set(RACKRAIL_NCCL_SOURCES
  nccl/communicator.cpp
  nccl/device_path.cpp
  nccl/early_pieces.cpp
  nccl/library.cpp)
set(RACKRAIL_NCCL_LIBRARIES ${CMAKE_DL_LIBS})
if(TARGET rackrail::nccl)
  add_library(rackrail_nccl_abi OBJECT nccl/abi_check.cpp)
  rackrail_own_code(rackrail_nccl_abi)
  target_link_libraries(rackrail_nccl_abi PRIVATE rackrail::nccl)
endif()

# What enqueues kernels as well needs CUDA's header, and no GPU.
if(RACKRAIL_HAVE_CUDA)
  list(APPEND RACKRAIL_NCCL_SOURCES
    nccl/device_executor.cpp
    nccl/device_messages.cpp
    nccl/host_messages.cpp
    nccl/plan_executor.cpp)
else()
  list(APPEND RACKRAIL_NCCL_SOURCES nccl/plan_executor_unavailable.cpp)
endif()
