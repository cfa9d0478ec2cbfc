#include "tests/support/random_clusters.hpp"

#include <algorithm>
#include <random>
#include <vector>

#include "tests/support/broken_grids.hpp"
#include "tests/support/clusters.hpp"

namespace rackrail::test {

namespace {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}

  int between(int least, int most) {
    return least + static_cast<int>(random_() % static_cast<std::uint64_t>(most - least + 1));
  }
  int one_of(const std::vector<int>& values) {
    return values[static_cast<std::size_t>(between(0, static_cast<int>(values.size()) - 1))];
  }
  bool one_in(int number) { return between(1, number) == 1; }

 private:
  std::mt19937_64 random_;
};

topology::Topology random_hosts(Dice& dice) {
  const int hosts = dice.between(2, 6);
  const int usual = dice.one_of({2, 4, 8});
  const int rate = dice.one_of({12, 25, 50});
  std::vector<std::vector<int>> nics;
  std::vector<int> inside;
  for (int h = 0; h < hosts; ++h) {
    const int gpus = dice.one_in(4) ? std::max(2, usual / 2) : usual;
    std::vector<int> of_host;
    for (int g = 0; g < gpus; ++g) {
      of_host.push_back(dice.one_in(6) ? dice.one_of({0, rate / 2, rate / 4}) : rate);
    }
    of_host.front() = std::max(of_host.front(), rate / 2);
    nics.push_back(of_host);
    inside.push_back(dice.one_in(4) ? 150 : 300);
  }
  return boxes_with_nics(nics, dice.one_of({1, 2, usual}), inside);
}

topology::Topology random_racks(Dice& dice) {
  std::vector<std::vector<int>> nics(static_cast<std::size_t>(dice.between(2, 5)));
  std::vector<int> uplinks;
  for (auto& rack : nics) {
    int sum = 0;
    for (int h = dice.between(2, 8); h > 0; --h) {
      rack.push_back(dice.one_of({10, 10, 10, 5, 25}));
      sum += rack.back();
    }
    uplinks.push_back(std::max(5, sum * dice.between(20, 100) / 100));
  }
  return racks(nics, uplinks);
}

topology::Topology random_leaves_and_spines(Dice& dice) {
  const auto spines = static_cast<std::size_t>(dice.between(2, 4));
  std::vector<std::vector<int>> nics(static_cast<std::size_t>(dice.between(3, 6)));
  std::vector<std::vector<int>> cables;
  for (auto& rack : nics) {
    rack.assign(static_cast<std::size_t>(dice.between(3, 10)), dice.one_of({10, 10, 25}));
    auto& of_rack = cables.emplace_back(spines, dice.one_of({10, 20}));
    for (int& cable : of_rack) {
      cable = dice.one_in(5) ? dice.one_of({0, cable / 2}) : cable;
    }
    of_rack.front() = std::max(of_rack.front(), 10);
  }
  return able(clos_of_cables(nics, cables), {});
}

topology::Topology random_three_tiers(Dice& dice) {
  std::vector<std::vector<int>> hosts(static_cast<std::size_t>(dice.between(2, 3)));
  for (auto& pod : hosts) {
    for (int r = dice.between(1, 3); r > 0; --r) {
      pod.push_back(dice.between(2, 9));
    }
  }
  return three_tiers(hosts, dice.between(1, 3));
}

topology::Topology random_mesh(Dice& dice) {
  const int rows = dice.between(2, 6);
  const int columns = dice.between(3, 7);
  const bool wraps = dice.one_in(2);
  std::vector<BrokenCable> changed;
  const int cables = rows * (columns - 1) + (rows - 1) * columns;  // at least
  for (int i = dice.between(0, 2); i > 0; --i) {
    changed.push_back({static_cast<unsigned>(2 * dice.between(0, cables - 1))});
    if (dice.one_in(2)) {
      changed.back().rate = Bandwidth(500'000'000);
    }
  }
  return broken_grid(rows, columns, wraps, changed);
}

}  // namespace

topology::Topology random_cluster(std::uint64_t seed) {
  Dice dice(seed);
  switch (seed % 5) {
    case 0:
      return random_hosts(dice);
    case 1:
      return random_racks(dice);
    case 2:
      return random_leaves_and_spines(dice);
    case 3:
      return random_three_tiers(dice);
    default:
      return random_mesh(dice);
  }
}

}  // namespace rackrail::test
