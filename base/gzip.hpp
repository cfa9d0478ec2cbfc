// Files that were compressed with gzip, as profilers write their traces.
#pragma once

#include <string>
#include <string_view>

#include "base/units.hpp"

namespace rackrail {

bool is_gzip(std::string_view content);

/// The content of all members of a gzip file. Throws ConfigError with `file` when it is damaged or
/// has more than `most` bytes.
std::string gunzip(std::string_view content, const std::string& file, Bytes most = 4_GiB);

}  // namespace rackrail
