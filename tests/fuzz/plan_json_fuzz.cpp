#include "tests/fuzz/plans.hpp"

std::vector<std::string> rackrail::fuzz::seeds() {
  std::vector<std::string> texts;
  for (const plan::Plan& plan : seed_plans()) {
    texts.push_back(plan::to_json(plan));
  }
  return texts;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rackrail;
  fuzz::read_plan(fuzz::text_of(data, size));
  return 0;
}
