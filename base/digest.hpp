// SHA-256 of text, as 64 lower-case hexadecimal digits: the identity of clusters, plans and inputs.
#pragma once

#include <string>
#include <string_view>

namespace rackrail {

std::string sha256_hex(std::string_view content);

}  // namespace rackrail
