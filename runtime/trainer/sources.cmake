# Read by runtime/CMakeLists.txt; paths are relative to runtime/.
set(RACKRAIL_TRAINER_SOURCES
  trainer/activation.cpp
  trainer/buckets.cpp
  trainer/checkpoint.cpp
  trainer/codec_errors.cpp
  trainer/config.cpp
  trainer/convolution.cpp
  trainer/dataset.cpp
  trainer/dense.cpp
  trainer/effective_settings.cpp
  trainer/host_compute.cpp
  trainer/learning_rate.cpp
  trainer/loader.cpp
  trainer/loss.cpp
  trainer/manifest.cpp
  trainer/models.cpp
  trainer/optimizer.cpp
  trainer/parameter_average.cpp
  trainer/profile.cpp
  trainer/safetensors.cpp
  trainer/sampler.cpp
  trainer/sequential.cpp
  trainer/statistics.cpp
  trainer/trained_model.cpp
  trainer/trainer.cpp)
set(RACKRAIL_TRAINER_LIBRARIES
  Eigen3::Eigen yaml-cpp::yaml-cpp nlohmann_json::nlohmann_json)
