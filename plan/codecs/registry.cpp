#include "plan/codecs/registry.hpp"

#include <array>

#include "base/error.hpp"
#include "plan/codecs/format.hpp"

namespace rackrail::plan {

const CodecFormat& codec_format(CodecKind kind) {
  static const std::array<const CodecFormat*, kCodecKinds> kFormats{
#define RACKRAIL_CODEC(kind, file) &file##_format(),
#include "plan/codecs/registered.inc"
#undef RACKRAIL_CODEC
  };
  return *kFormats[static_cast<std::size_t>(kind)];
}

std::unique_ptr<CodecArithmetic> make_codec_arithmetic(const Codec& codec) {
  const CodecFormat& format = codec_format(codec.kind);
  for (const CodecParameter& parameter : format.traits().parameters) {
    if (!is_within_limits(parameter, codec)) {
      throw RuntimeFailure("codec " + to_string(codec) + ": '" + std::string(parameter.name) +
                           "' outside its limits");
    }
  }
  return format.arithmetic(codec);
}

}  // namespace rackrail::plan
