// The function of each codec's file that gives its format, declared from registered.inc.
#pragma once

namespace rackrail::plan {

class CodecFormat;

#define RACKRAIL_CODEC(kind, file) const CodecFormat& file##_format();
#include "plan/codecs/registered.inc"
#undef RACKRAIL_CODEC

}  // namespace rackrail::plan
