#include "cli/emulation.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/parse_units.hpp"
#include "cli/inputs.hpp"
#include "cli/shared_numbers.hpp"
#include "cli/table.hpp"
#include "runtime/emulate/commands.hpp"

namespace rackrail::cli {

namespace {

namespace emulate = runtime::emulate;

unsigned cores() { return std::max(1U, std::thread::hardware_concurrency()); }

/// "host0 -> tor0".
std::string name_of(const emulate::NetworkPlan& plan, const emulate::LinkMeasurement& one) {
  const emulate::ShapedLink& link = plan.links[one.link];
  const std::string& a = plan.stations[link.a].name;
  const std::string& b = plan.stations[link.b].name;
  return one.is_reverse ? b + " -> " + a : a + " -> " + b;
}

Bandwidth rate_of(const emulate::NetworkPlan& plan, const emulate::LinkMeasurement& one) {
  const emulate::ShapedLink& link = plan.links[one.link];
  return one.is_reverse ? link.rate_ba : link.rate_ab;
}

}  // namespace

CLI::Option* add_scale_option(CLI::App& command, double& scale) {
  return command
      .add_option("--scale", scale,
                  "Factor of all link rates, e.g. 0.0125 makes 40 Gbit/s 500 Mbit/s, which one "
                  "machine can carry")
      ->capture_default_str();
}

emulate::NetworkPlan plan_emulation(Session& session, const topology::Topology& cluster,
                                    const std::string& file, double scale) {
  emulate::NetworkPlan plan =
      named(file, "", [&] { return emulate::plan_network(cluster, scale, cores()); });
  for (const std::string& note : plan.notes) {
    session.note("note: " + note);
  }
  return plan;
}

topology::Topology machine_as_network(const topology::Topology& original,
                                      const emulate::NetworkPlan& plan,
                                      const plan::Calibration& calibration) {
  using topology::NodeKind;
  // Two links are the least that a message between two hosts crosses, and what calibration saw.
  constexpr double kPerLink = 0.5;
  topology::Topology network = emulate::emulated_topology(
      original, plan,
      {.payload_share = emulate::kPayloadShare,
       .latency = scaled(calibration.latency, kPerLink),
       .overhead = calibration.message_overhead,
       .inside = calibration.core_bandwidth,
       .cores = calibration.core_bandwidth * static_cast<std::int64_t>(calibration.cores)});
  const NodeId from = network.add_node({.name = "cores-in", .kind = NodeKind::kSwitch});
  const NodeId to = network.add_node({.name = "cores-out", .kind = NodeKind::kSwitch});
  const auto cores = static_cast<std::int64_t>(calibration.cores);
  const LinkId shared =
      network.add_link({.from = from,
                        .to = to,
                        .bandwidth = calibration.core_bandwidth * cores,
                        .kind = topology::LinkKind::kShared,
                        .tier = "cores",
                        .cpu_share = 1.0 / static_cast<double>(calibration.cores)});
  for (std::size_t r = 0; r < network.rank_count(); ++r) {
    network.set_processor(Rank(r), shared);
  }
  return network;
}

emulate::EmulatedNetwork built_network(const Session& session, const emulate::NetworkPlan& plan) {
  const ProgressBar bar("building the network", session.progress_elsewhere());
  return emulate::EmulatedNetwork(plan);
}

CheckedLinks check_emulation(Session& session, const emulate::EmulatedNetwork& network,
                             const runtime::InterruptGuard& interrupts) {
  CheckedLinks checked;
  if (getloadavg(&checked.load, 1) != 1) {
    checked.load = 0;
  }
  ProgressBar bar("measuring the links", session.progress_elsewhere());
  checked.links = emulate::check_links(network, {.cores = cores(), .is_cancelled = [&interrupts] {
                                                   return interrupts.received() != 0;
                                                 }});
  bar.clear();
  const auto held = std::count_if(checked.links.begin(), checked.links.end(),
                                  [](const auto& one) { return one.is_held(); });
  checked.is_held = checked.links.size() == 2 * network.plan().links.size() &&
                    held == static_cast<std::ptrdiff_t>(checked.links.size());
  if (checked.is_held || interrupts.received() != 0) {
    return checked;
  }
  for (const emulate::LinkMeasurement& one : checked.links) {
    if (!one.is_held()) {
      session.note(fmt::format("{} does not hold its rate: {} instead of {} ({:+.1f} %)",
                               name_of(network.plan(), one), to_string(one.measured),
                               to_string(one.expected), one.error() * kPercent));
    }
  }
  session.note(fmt::format(
      "INVALID: {} of {} links are off their rate by more than {:.0f} %, so do not trust the times",
      static_cast<std::ptrdiff_t>(checked.links.size()) - held, checked.links.size(),
      emulate::kTolerance * kPercent));
  return checked;
}

std::string links_table(const emulate::NetworkPlan& plan, const CheckedLinks& checked) {
  Table table({{"link"},
               {"rate", Align::kRight},
               {"payload", Align::kRight},
               {"measured", Align::kRight},
               {"error", Align::kRight}});
  for (const emulate::LinkMeasurement& one : checked.links) {
    table.add_row({name_of(plan, one), to_string(rate_of(plan, one)), to_string(one.expected),
                   to_string(one.measured), fmt::format("{:+.1f} %", one.error() * kPercent)});
  }
  return table.to_string();
}

nlohmann::json links_json(const emulate::NetworkPlan& plan, const CheckedLinks& checked) {
  nlohmann::json links = nlohmann::json::array();
  for (const emulate::LinkMeasurement& one : checked.links) {
    links.push_back({{"link", name_of(plan, one)},
                     {"rate_bytes_per_s", rate_of(plan, one).bytes_per_second()},
                     {"expected_bytes_per_s", one.expected.bytes_per_second()},
                     {"measured_bytes_per_s", one.measured.bytes_per_second()},
                     {"relative_error", one.error()},
                     {"held", one.is_held()}});
  }
  return {{"links", links},      {"valid", checked.is_held}, {"load", checked.load},
          {"scale", plan.scale}, {"hosts", plan.host_count}, {"notes", plan.notes}};
}

}  // namespace rackrail::cli
