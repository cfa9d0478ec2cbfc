#include "base/error.hpp"
#include "runtime/codecs/factories.hpp"

namespace rackrail::runtime {

std::unique_ptr<Codec> make_codec(const plan::Codec& descriptor) {
  switch (descriptor.kind) {
    case plan::CodecKind::kNone:
      return make_plain_codec(descriptor);
    case plan::CodecKind::kFp16:
      return make_fp16_codec(descriptor);
    case plan::CodecKind::kInt8Block:
      return make_int8_block_codec(descriptor);
    case plan::CodecKind::kTopK:
      return make_top_k_codec(descriptor);
  }
  throw RuntimeFailure("this machine has no codec of kind " +
                       std::to_string(static_cast<int>(descriptor.kind)));
}

}  // namespace rackrail::runtime
