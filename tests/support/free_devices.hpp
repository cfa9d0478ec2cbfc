// Devices that cost nothing, so that times are the network's alone.
#pragma once

#include "base/units.hpp"
#include "plan/cost_model.hpp"

namespace rackrail::test {

inline plan::DeviceRates free_devices() {
  constexpr Bandwidth kFast(1'000'000'000'000'000);
  plan::DeviceRates rates;
  rates.codecs.fill({kFast, kFast});
  rates.reduce = kFast;
  rates.launch = Duration();
  return rates;
}

}  // namespace rackrail::test
