#include "bench/gpu/sample.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <thread>

#include "base/random.hpp"

namespace rackrail::bench {

std::vector<float> random_gradients(std::size_t size, std::uint64_t seed) {
  constexpr std::size_t kLayer = 1U << 20U;
  std::vector<float> values(size);
  const std::size_t parts = std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::jthread> threads;
  for (std::size_t part = 0; part < parts; ++part) {
    threads.emplace_back([&, part] {
      for (std::size_t i = part * size / parts; i < (part + 1) * size / parts; ++i) {
        // Box and Muller, "A note on the generation of random normal deviates", 1958. The first
        // number lies in (0, 1].
        const std::uint64_t bits = random_bits(seed, i);
        const float first = (static_cast<float>(bits >> 40U) + 1) * 0x1p-24F;
        const float second = static_cast<float>(bits & 0xffffffU) * 0x1p-24F;
        const float layer = 1 + static_cast<float>(random_bits(seed + 1, i / kLayer) % 8);
        values[i] = 1e-3F * layer * std::sqrt(-2 * std::log(first)) *
                    std::cos(2 * std::numbers::pi_v<float> * second);
      }
    });
  }
  return values;
}

}  // namespace rackrail::bench
