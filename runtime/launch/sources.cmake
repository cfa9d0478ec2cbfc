# Read by runtime/CMakeLists.txt; paths are relative to runtime/.
set(RACKRAIL_LAUNCH_SOURCES
  launch/collective_job.cpp
  launch/environment.cpp
  launch/gpu_worker.cpp
  launch/hostlist.cpp
  launch/job.cpp
  launch/job_settings.cpp
  launch/leader.cpp
  launch/local_workers.cpp
  launch/report.cpp
  launch/session.cpp
  launch/signals.cpp
  launch/spawn.cpp
  launch/state_transfer.cpp
  launch/worker.cpp)
set(RACKRAIL_LAUNCH_LIBRARIES nlohmann_json::nlohmann_json fmt::fmt)
