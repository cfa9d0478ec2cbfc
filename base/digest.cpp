#include "base/digest.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

#include "base/error.hpp"

namespace rackrail {

std::string sha256_hex(std::string_view content) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  if (EVP_Digest(content.data(), content.size(), digest.data(), &size, EVP_sha256(), nullptr) !=
      1) {
    throw RuntimeFailure("SHA-256 is not available from OpenSSL on this machine");
  }
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) {
    hex += fmt::format("{:02x}", digest.at(i));
  }
  return hex;
}

}  // namespace rackrail
