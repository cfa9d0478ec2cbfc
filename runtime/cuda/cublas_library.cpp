#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/build_config.hpp"
#include "runtime/cuda/cublas.hpp"

namespace rackrail::runtime {
namespace {

template <typename Function>
bool find(void* library, Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

std::vector<std::string> places() {
  if (const char* named = std::getenv("RACKRAIL_CUBLAS_LIBRARY")) {
    return {named};
  }
  const std::string_view version = build_config::kCudaVersion;
  const std::string own(version.substr(0, version.find('.')));
  const auto file = [](const std::string& major) { return "libcublas.so." + major; };
  std::vector<std::string> files{file(own)};
  if (!build_config::kCudaLibraries.empty()) {
    files.push_back(std::string(build_config::kCudaLibraries) + "/" + file(own));
  }
  for (const char* other : {"13", "12"}) {  // what is called here is alike in both
    if (other != own) {
      files.push_back(file(other));
    }
  }
  return files;
}

CublasLibrary load() {
  CublasLibrary library;
  void* handle = nullptr;
  std::string reason;
  for (const std::string& file : places()) {
    handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) {
      library.file = file;
      break;
    }
    if (reason.empty()) {
      const char* said = dlerror();
      reason = said == nullptr ? file + " cannot be loaded" : said;
    }
  }
  if (handle == nullptr) {
    library.unavailable = "no cuBLAS: " + reason;
    return library;
  }
  CublasFunctions& f = library.functions;
  const bool is_whole =
      find(handle, f.create, "cublasCreate_v2") && find(handle, f.destroy, "cublasDestroy_v2") &&
      find(handle, f.get_version, "cublasGetVersion_v2") &&
      find(handle, f.set_stream, "cublasSetStream_v2") && find(handle, f.sgemm, "cublasSgemm_v2");
  if (!is_whole) {
    library.unavailable = "no cuBLAS: " + library.file + " lacks a function of version 2";
  }
  return library;
}

}  // namespace

const CublasLibrary& cublas_library() {
  static const CublasLibrary library = load();
  return library;
}

}  // namespace rackrail::runtime
