#include "topology/flow_network.hpp"

#include <catch2/catch.hpp>

namespace rackrail::flow_network_test {

using rackrail::topology::Capacity;
using rackrail::topology::FlowNetwork;

namespace {

/// The example of Cormen et al., "Introduction to Algorithms": s = 0, t = 5, flow 23.
FlowNetwork textbook() {
  FlowNetwork network(6);
  network.add_arc(0, 1, 16);
  network.add_arc(0, 2, 13);
  network.add_arc(1, 3, 12);
  network.add_arc(2, 1, 4);
  network.add_arc(2, 4, 14);
  network.add_arc(3, 2, 9);
  network.add_arc(3, 5, 20);
  network.add_arc(4, 3, 7);
  network.add_arc(4, 5, 4);
  network.reset();
  return network;
}

}  // namespace

TEST_CASE("flow of a textbook network and its cut") {
  FlowNetwork network = textbook();
  CHECK(network.augment(0, 5, 1000) == 23);
  const std::vector<bool> side = network.reachable_from(0);
  CHECK(side == std::vector{true, true, true, false, true, false});
}

TEST_CASE("a cap stops the flow, and more can be added later") {
  FlowNetwork network = textbook();
  CHECK(network.augment(0, 5, 10) == 10);
  CHECK(network.augment(0, 5, 1000) == 13);
  CHECK(network.augment(0, 5, 1000) == 0);
  network.reset();
  CHECK(network.augment(0, 5, 1000) == 23);
}

TEST_CASE("capacities change in place") {
  FlowNetwork network(3);
  const FlowNetwork::Arc first = network.add_arc(0, 1, 5);
  network.add_arc(1, 2, 7);
  network.reset();
  CHECK(network.augment(0, 2, 100) == 5);
  network.set_capacity(first, 9);
  network.reset();
  CHECK(network.augment(0, 2, 100) == 7);
}

TEST_CASE("an arc with a capacity back carries flow both ways") {
  FlowNetwork network(2);
  network.add_arc(0, 1, 5, 3);
  network.reset();
  CHECK(network.augment(1, 0, 100) == 3);
  network.reset();
  CHECK(network.augment(0, 1, 100) == 5);
}

TEST_CASE("capacities beyond 64 bits do not wrap") {
  const Capacity big = static_cast<Capacity>(INT64_MAX) * 1000;
  FlowNetwork network(3);
  network.add_arc(0, 1, big);
  network.add_arc(1, 2, big + 1);
  network.reset();
  CHECK((network.augment(0, 2, big * 2) == big));
}

TEST_CASE("no way, no flow") {
  FlowNetwork network(3);
  network.add_arc(1, 0, 4);
  network.add_arc(1, 2, 4);
  network.reset();
  CHECK(network.augment(0, 2, 100) == 0);
  CHECK(network.reachable_from(0) == std::vector{true, false, false});
}

}  // namespace rackrail::flow_network_test
