#include "plan/codec_name.hpp"

#include <fmt/format.h>

namespace rackrail::plan {

std::string display_name(const Codec& codec) {
  if (!codec.is_lossy()) {
    return std::string(kUncompressedName);
  }
  const std::string name = to_string(codec);
  return codec.depends_on_shapes()
             ? fmt::format("{}:rank={}", name.substr(0, name.find(':')), codec.rank)
             : name;
}

}  // namespace rackrail::plan
