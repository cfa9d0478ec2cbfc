#include "runtime/coordinator/grpc_setup.hpp"

#include <cstdlib>
#include <mutex>

namespace rackrail::runtime {

void prepare_grpc() {
  static std::once_flag once;
  std::call_once(once, [] { setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0); });
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
