#include "runtime/coordinator/grpc_setup.hpp"

#include <grpc/support/log.h>

#include <cstdlib>
#include <mutex>

namespace rackrail::runtime {

void prepare_grpc() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Not by setting the variable: other threads of a program that uses the C interface may be
    // reading the environment just now.
    if (std::getenv("GRPC_VERBOSITY") == nullptr) {
      gpr_set_log_function([](gpr_log_func_args* /*arguments*/) {});
    }
  });
}

std::string one_line(std::string_view text) {
  constexpr std::size_t kLongest = 1000;
  std::string line(text.substr(0, kLongest));
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') {
      c = ' ';
    }
  }
  return line;
}

}  // namespace rackrail::runtime
