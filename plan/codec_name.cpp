#include "plan/codec_name.hpp"

namespace rackrail::plan {

std::string display_name(const Codec& codec) {
  if (!codec.is_lossy()) {
    return std::string(kUncompressedName);
  }
  return to_string(codec);
}

}  // namespace rackrail::plan
