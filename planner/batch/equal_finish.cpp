#include "planner/batch/equal_finish.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>

#include "base/error.hpp"
#include "base/parse_units.hpp"

namespace rackrail::planner {

namespace {

/// Real-valued batches that sum to `samples`; the limits must allow that.
std::vector<double> water_fill(const std::vector<DeviceSpeed>& devices, double samples) {
  std::vector<double> batch(devices.size(), 0);
  std::vector<std::size_t> open(devices.size());
  std::iota(open.begin(), open.end(), std::size_t{0});
  double left = samples;
  while (!open.empty()) {
    double offset = 0;
    double rate = 0;
    for (const std::size_t i : open) {
      offset += devices[i].fixed / devices[i].per_sample;
      rate += 1 / devices[i].per_sample.seconds();
    }
    const double finish = (left + offset) / rate;
    double above = 0;
    double below = 0;
    for (const std::size_t i : open) {
      batch[i] = (finish - devices[i].fixed.seconds()) / devices[i].per_sample.seconds();
      above += std::max(0.0, batch[i] - static_cast<double>(devices[i].largest));
      below += std::max(0.0, 1 - batch[i]);
    }
    if (above == 0 && below == 0) {
      break;
    }
    const bool fixes_lower = below >= above;
    std::erase_if(open, [&](std::size_t i) {
      const auto largest = static_cast<double>(devices[i].largest);
      if (fixes_lower ? batch[i] >= 1 : batch[i] <= largest) {
        return false;
      }
      batch[i] = fixes_lower ? 1 : largest;
      left -= batch[i];
      return true;
    });
  }
  return batch;
}

Duration finish_of(const DeviceSpeed& device, std::int64_t batch) {
  return device.fixed + batch * device.per_sample;
}

}  // namespace

std::optional<std::vector<std::int64_t>> equal_finish(const std::vector<DeviceSpeed>& devices,
                                                      std::int64_t samples) {
  std::int64_t room = 0;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].per_sample <= Duration() || devices[i].largest < 1) {
      throw PlanError(
          ErrorContext{"", fmt::format("device {}", i),
                       fmt::format("{} per sample, room for {}", to_string(devices[i].per_sample),
                                   devices[i].largest),
                       "a positive time per sample and room for one"});
    }
    room = detail::checked_add(room, devices[i].largest);
  }
  if (samples < static_cast<std::int64_t>(devices.size()) || samples > room) {
    return std::nullopt;
  }
  const std::vector<double> exact = water_fill(devices, static_cast<double>(samples));
  std::vector<std::int64_t> batch(devices.size());
  std::vector<double> remainder(devices.size());
  std::int64_t given = 0;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    batch[i] = std::clamp<std::int64_t>(static_cast<std::int64_t>(std::floor(exact[i])), 1,
                                        devices[i].largest);
    remainder[i] = exact[i] - static_cast<double>(batch[i]);
    given += batch[i];
  }
  std::vector<std::size_t> order(devices.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return remainder[a] > remainder[b]; });
  // Rounding of doubles can leave more or less than a sample per device to give, hence the loops.
  while (given < samples) {
    for (const std::size_t i : order) {
      if (given < samples && batch[i] < devices[i].largest) {
        ++batch[i];
        ++given;
      }
    }
  }
  while (given > samples) {
    for (auto it = order.rbegin(); it != order.rend(); ++it) {
      if (given > samples && batch[*it] > 1) {
        --batch[*it];
        --given;
      }
    }
  }
  return batch;
}

FinishTimes finish_times(const std::vector<DeviceSpeed>& devices,
                         const std::vector<std::int64_t>& batches) {
  FinishTimes times;
  if (devices.empty()) {
    return times;
  }
  Duration shortest = finish_of(devices[0], batches.at(0));
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const Duration finish = finish_of(devices[i], batches.at(i));
    times.longest = std::max(times.longest, finish);
    shortest = std::min(shortest, finish);
  }
  times.spread = times.longest > Duration() ? 1 - shortest / times.longest : 0;
  return times;
}

std::vector<DeviceSpeed> device_speeds(const topology::Topology& topology,
                                       const plan::Workload& workload, std::int64_t passes) {
  std::map<std::string, DeviceSpeed> of_class;
  std::vector<DeviceSpeed> speeds;
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    const topology::Node& node = topology.node(topology.node_of(Rank(r)));
    auto it = of_class.find(node.device_class);
    if (it == of_class.end()) {
      const auto pass = [&](std::int64_t batch) {
        const plan::ComputeTimes times = plan::compute_times(workload, node, batch);
        return times.forward + times.backward +
               scaled(times.optimizer, 1 / static_cast<double>(passes));
      };
      // Far apart, so that rounding to picoseconds does not count.
      constexpr std::int64_t kFar = 1024;
      constexpr std::int64_t kNoLimit = 1'000'000'000;
      const Duration one = pass(1);
      const Duration per_sample =
          std::max(Duration(1), scaled(pass(kFar + 1) - one, 1.0 / static_cast<double>(kFar)));
      it = of_class.emplace(node.device_class, DeviceSpeed{one - per_sample, per_sample, kNoLimit})
               .first;
    }
    DeviceSpeed speed = it->second;
    if (node.memory && workload.memory_per_sample && workload.memory_per_sample->count() > 0) {
      const Bytes free = *node.memory - workload.memory_fixed.value_or(Bytes());
      speed.largest = free.count() / workload.memory_per_sample->count();
      if (speed.largest < 1) {
        throw ConfigError(
            ErrorContext{"", fmt::format("memory of '{}'", node.name), to_string(*node.memory),
                         fmt::format("room for {} and one sample of {}",
                                     to_string(workload.memory_fixed.value_or(Bytes())),
                                     to_string(*workload.memory_per_sample))});
      }
    }
    speeds.push_back(speed);
  }
  return speeds;
}

}  // namespace rackrail::planner
