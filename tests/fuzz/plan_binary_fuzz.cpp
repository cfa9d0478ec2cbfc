// The input is a binary plan without its checksum, which nobody finds by chance: it is put on here,
// so that what is behind it is reached.
#include <algorithm>
#include <charconv>

#include "base/digest.hpp"
#include "tests/fuzz/plans.hpp"

namespace {

constexpr std::size_t kTag = 2;  // of field 2047, of 64 bits
constexpr std::size_t kTail = kTag + 8;

std::string with_checksum(std::string_view body) {
  std::uint64_t checksum = 0;
  const std::string digest = rackrail::sha256_hex(body);
  std::from_chars(digest.data(), digest.data() + 16, checksum, 16);
  std::string content(body);
  content += "\xf9\x7f";
  for (std::size_t byte = 0; byte < kTail - kTag; ++byte) {
    content += static_cast<char>(checksum >> (8 * byte) & 0xffU);
  }
  return content;
}

}  // namespace

std::vector<std::string> rackrail::fuzz::seeds() {
  std::vector<std::string> bodies;
  for (const plan::Plan& plan : seed_plans()) {
    const std::string content = plan::to_binary(plan);
    bodies.push_back(content.substr(0, content.size() - kTail));
    require(with_checksum(bodies.back()) == content, "another checksum than the writer's");
  }
  return bodies;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rackrail;
  const std::string_view body = fuzz::text_of(data, size);
  fuzz::read_plan(body);
  fuzz::read_plan(with_checksum(body));
  return 0;
}
