#include <array>
#include <simgrid/s4u.hpp>
#include <string>
#include <vector>

// Needs macros of those above.
#include <simgrid/version.h>

#include "bench/peers/peers.hpp"
#include "bench/sim/fabric.hpp"

namespace rackrail::bench {

namespace {

namespace s4u = simgrid::s4u;

using Hosts = std::vector<s4u::Host*>;

/// The hosts of a two-level fat tree like bench/sim/fabric.hpp.
Hosts make_fat_tree(std::size_t ranks) {
  constexpr unsigned leaf = Fabric::kHostsPerLeaf;
  constexpr double bytes_per_second = 100e9 / 8;
  Hosts hosts(ranks);
  const auto add_host = [&](s4u::NetZone* zone, const std::vector<unsigned long>&,
                            unsigned long id) {
    hosts[id] = zone->create_host("host" + std::to_string(id), 1e9)->seal();
    return std::pair<simgrid::kernel::routing::NetPoint*, simgrid::kernel::routing::NetPoint*>(
        hosts[id]->get_netpoint(), nullptr);
  };
  const s4u::FatTreeParams shape(2, {leaf, static_cast<unsigned>(ranks) / leaf}, {1, leaf}, {1, 1});
  s4u::create_fatTree_zone("fabric", nullptr, shape, s4u::ClusterCallbacks(add_host),
                           bytes_per_second, 0, s4u::Link::SharingPolicy::SPLITDUPLEX)
      ->seal();
  // "link_from_<child>_<parent>_…", where hosts have the lowest numbers.
  for (s4u::Link* link : s4u::Engine::get_instance()->get_all_links()) {
    const std::string prefix = "link_from_";
    const std::string& link_name = link->get_name();
    if (link_name.rfind(prefix, 0) == 0 && std::stoul(link_name.substr(prefix.size())) < ranks) {
      link->set_latency(1e-6);
    }
  }
  return hosts;
}

// Each pattern is written in the way that was quickest in SimGrid 3.32. Comm::sendto() and detached
// messages are shorter, but all of those under way are in one list, which is gone through for every
// end: eight times as long for all-to-all of 256. With mailboxes the lists are by actor.

using Boxes = std::vector<s4u::Mailbox*>;

/// What is in the messages; nobody looks at it.
char payload = 0;

/// A rank is an actor that sends to the next one and receives from the one before.
void add_ring(const Hosts& hosts, const Boxes& boxes, std::uint64_t& flows) {
  const std::size_t n = hosts.size();
  for (std::size_t r = 0; r < n; ++r) {
    s4u::Actor::create("rank", hosts[r], [n, &flows, in = boxes[r], out = boxes[(r + 1) % n]] {
      for (std::size_t step = 0; step < 2 * (n - 1); ++step) {
        const s4u::CommPtr sent = out->put_async(&payload, kRingBytes / n);
        in->get<char>();
        sent->wait();
        ++flows;
      }
    });
  }
}

void add_all_to_all(const Hosts& hosts, const Boxes& boxes, std::uint64_t& flows) {
  for (std::size_t r = 0; r < hosts.size(); ++r) {
    s4u::Actor::create("rank", hosts[r], [n = hosts.size(), &boxes, &flows, r] {
      char* received = nullptr;
      std::vector<s4u::CommPtr> receipts;
      std::vector<s4u::CommPtr> sent;
      for (std::size_t i = 1; i < n; ++i) {
        receipts.push_back(boxes[r]->get_async<char>(&received));
      }
      for (std::size_t i = 1; i < n; ++i) {
        sent.push_back(boxes[(r + i) % n]->put_async(&payload, kAllToAllBytes / n));
      }
      for (const s4u::CommPtr& comm : receipts) {
        comm->wait();
        ++flows;
      }
      for (const s4u::CommPtr& comm : sent) {
        comm->wait();
      }
    });
  }
}

/// A rank sends one message after the other. What comes for it starts at once, as its mailbox has a
/// permanent receiver, and is looked at when all is sent.
void add_churn(const Hosts& hosts, const Boxes& boxes, std::uint64_t& flows) {
  const std::size_t n = hosts.size();
  std::vector<std::size_t> incoming(n);
  for (std::size_t from = 0; from < n; ++from) {
    for (std::size_t i = 0; i < kChurnMessages; ++i) {
      ++incoming[churn_message(n, from, i).to];
    }
  }
  for (std::size_t r = 0; r < n; ++r) {
    const s4u::ActorPtr rank =
        s4u::Actor::create("rank", hosts[r], [n, &boxes, &flows, r, count = incoming[r]] {
          for (std::size_t i = 0; i < kChurnMessages; ++i) {
            const Message message = churn_message(n, r, i);
            boxes[message.to]->put(&payload, static_cast<std::uint64_t>(message.bytes));
          }
          for (std::size_t i = 0; i < count; ++i) {
            boxes[r]->get<char>();
            ++flows;
          }
        });
    boxes[r]->set_receiver(rank);
  }
}

}  // namespace

Outcome run_simgrid(const Case& what) {
  const double began = cpu_seconds();
  std::string program = "simgrid";
  std::string quiet = "--log=root.thresh:warning";
  std::array<char*, 3> arguments{program.data(), quiet.data(), nullptr};
  int argument_count = 2;
  s4u::Engine engine(&argument_count, arguments.data());
  for (const char* setting :
       {"network/model:CM02", "network/bandwidth-factor:1", "network/latency-factor:1",
        "network/weight-S:0", "network/TCP-gamma:0", "network/crosstraffic:0",
        "maxmin/precision:1e-13", "surf/precision:1e-12", "contexts/stack-size:64"}) {
    s4u::Engine::set_config(setting);
  }
  const Hosts hosts = make_fat_tree(what.ranks);
  Boxes boxes;
  for (std::size_t r = 0; r < hosts.size(); ++r) {
    boxes.push_back(s4u::Mailbox::by_name(std::to_string(r)));
  }
  Outcome outcome;
  switch (what.pattern) {
    case Pattern::kRing:
      add_ring(hosts, boxes, outcome.flows);
      break;
    case Pattern::kAllToAll:
      add_all_to_all(hosts, boxes, outcome.flows);
      break;
    case Pattern::kChurn:
      add_churn(hosts, boxes, outcome.flows);
      break;
  }
  outcome.setup_cpu_seconds = cpu_seconds() - began;
  engine.run();
  outcome.simulated_seconds = s4u::Engine::get_clock();
  return outcome;
}

std::string simgrid_version() {
  int major = 0;
  int minor = 0;
  int patch = 0;
  sg_version_get(&major, &minor, &patch);
  return std::to_string(major) + "." + std::to_string(minor) +
         (patch > 0 ? "." + std::to_string(patch) : "");
}

}  // namespace rackrail::bench
