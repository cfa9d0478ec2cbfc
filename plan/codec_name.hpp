// What people read a codec as; files have plan::to_string(codec).
#pragma once

#include <string>
#include <string_view>

#include "plan/codec.hpp"

namespace rackrail::plan {

/// Of what is sent as it is. parse_codec() reads it, too.
inline constexpr std::string_view kUncompressedName = "fp32";

/// "fp32" for none; all others as to_string().
std::string display_name(const Codec& codec);

}  // namespace rackrail::plan
