#include "sim/token_buckets.hpp"

#include <catch2/catch.hpp>
#include <vector>

namespace rackrail::sim::token_buckets_test {
namespace {

constexpr double kRate = 1e-3;  // bytes per picosecond: 1 GB/s

// One link without a burst, and one of 1,000 bytes.
topology::Topology two_links() {
  topology::Topology topology("pair");
  const NodeId a = topology.add_node({.name = "a"});
  const NodeId b = topology.add_node({.name = "b"});
  topology.add_link({.from = a, .to = b, .bandwidth = 1_GBps});
  topology.add_link({.from = b, .to = a, .bandwidth = 1_GBps, .burst = Bytes(1'000)});
  return topology;
}

struct Links {
  Links() { buckets.set_rate(link, kRate, shares); }

  topology::Topology topology = two_links();
  LinkId link = LinkId(1);
  std::vector<LinkId> route = {link};
  FairShares shares{std::vector<double>{kRate, kRate}};
  TokenBuckets buckets{topology};
};

TEST_CASE("buckets are those of links with a burst") {
  const Links of;
  CHECK_FALSE(of.buckets.empty());
  CHECK(of.buckets.has(LinkId(1)));
  CHECK_FALSE(of.buckets.has(LinkId(0)));
  CHECK(of.buckets.next_empty(0, of.shares) == TokenBuckets::kNever);
  CHECK(TokenBuckets(topology::Topology("none")).empty());
}

TEST_CASE("an open link carries more than its rate until its bucket is empty, then its rate") {
  Links of;
  of.shares.add(0, of.route, {});
  of.shares.solve();
  CHECK(of.shares.rate(0) == Approx(kRate + kOpenRate));
  CHECK(of.buckets.next_empty(0, of.shares) == 1'000);
  of.buckets.advance(500, of.shares);
  CHECK_FALSE(of.buckets.close_empty(of.shares));
  CHECK(of.buckets.next_empty(500, of.shares) == 1'000);
  of.buckets.advance(1'000, of.shares);
  CHECK(of.buckets.close_empty(of.shares));
  of.shares.solve();
  CHECK(of.shares.rate(0) == Approx(kRate));
  // At its rate nothing comes back.
  of.buckets.advance(1'000'000'000, of.shares);
  of.buckets.open(of.shares);
  CHECK_FALSE(of.shares.is_stale());
  CHECK(of.buckets.next_empty(1'000'000'000, of.shares) == TokenBuckets::kNever);
}

TEST_CASE("a bucket fills by what is not used of the rate") {
  Links of;
  of.shares.add(0, of.route, {});
  of.shares.solve();
  of.buckets.advance(1'000, of.shares);
  of.buckets.close_empty(of.shares);
  of.shares.solve();
  of.shares.remove(0);
  of.shares.add(0, of.route, 0.25 * kRate);
  of.shares.solve();
  of.buckets.advance(1'000 + 200'000, of.shares);  // 150 bytes at three quarters of the rate
  of.buckets.open(of.shares);
  REQUIRE(of.shares.is_stale());
  of.shares.remove(0);
  of.shares.add(0, of.route, {});
  of.shares.solve();
  CHECK(of.buckets.next_empty(201'000, of.shares) == 201'000 + 150);
}

}  // namespace
}  // namespace rackrail::sim::token_buckets_test
