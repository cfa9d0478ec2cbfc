#include "runtime/trainer/safetensors.hpp"

#include "tests/fuzz/fuzz.hpp"

namespace {

using rackrail::trainer::SafetensorsFile;

std::string encoded(const SafetensorsFile& file) {
  std::vector<rackrail::trainer::NamedTensor> tensors;
  for (const SafetensorsFile::Entry& entry : file.tensors) {
    tensors.push_back({entry.name, entry.shape, entry.values});
  }
  return rackrail::trainer::encode_safetensors(tensors, file.metadata);
}

}  // namespace

std::vector<std::string> rackrail::fuzz::seeds() {
  const std::vector<float> values{1, -2, 3.5F, 0, 1e-40F, 7};
  return {encoded({{{"step", "7"}, {"quote", "\"\n"}},
                   {{"a", {2, 3}, values}, {"b", {}, {42}}, {"empty", {0, 4}, {}}}}),
          encoded({})};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rackrail;
  const std::string_view content = fuzz::text_of(data, size);
  trainer::SafetensorsFile file;
  const bool is_described =
      fuzz::accepted([&] { file = trainer::describe_safetensors(content, "model"); });
  const bool is_read = fuzz::accepted([&] { file = trainer::parse_safetensors(content, "model"); });
  fuzz::require(is_read == is_described, "described and not read, or the reverse");
  if (is_read) {
    const std::string written = encoded(file);
    fuzz::require(encoded(trainer::parse_safetensors(written, "model")) == written,
                  "another file when written and read again");
  }
  return 0;
}
