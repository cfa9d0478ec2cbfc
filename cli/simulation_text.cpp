#include "cli/simulation_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/parse_units.hpp"
#include "cli/health.hpp"
#include "cli/table.hpp"

namespace rackrail::cli {

namespace {

constexpr std::size_t kRowsShown = 12;

/// The steps together, and those that took longest.
void print_steps(const plan::Plan& plan, const sim::StepResult& result,
                 const sim::StepChoice& choice) {
  std::vector<std::size_t> order(result.steps.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto length = [&](std::size_t i) { return sim::step_period(result.steps, i); };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return length(a) > length(b); });
  order.resize(std::min(order.size(), kRowsShown));
  std::sort(order.begin(), order.end());
  Table table({{"longest steps", Align::kRight},
               {"start", Align::kRight},
               {"time", Align::kRight},
               {"waited for data", Align::kRight}});
  for (const std::size_t i : order) {
    table.add_row({std::to_string(i), to_string(result.steps[i].start), to_string(length(i)),
                   to_string(result.steps[i].waited_for_data)});
  }
  fmt::print("{}{} steps, {} each on average, {:.1f} samples/s; what follows is step {}'s, {}\n\n",
             table.to_string(), result.steps.size(), to_string(result.mean_step_time),
             throughput(plan, result), result.reported, choice.words());
}

/// What a step of the slowest device is spent on, and how long others wait for it.
std::string parts_of_step(const sim::StepResult& result) {
  const plan::StepEstimate& estimate = result.estimate;
  std::vector<Table::Column> columns{{"step time", Align::kRight}, {"compute", Align::kRight}};
  std::vector<std::string> cells{to_string(estimate.step_time), to_string(estimate.compute_time)};
  if (result.waited_for_data > Duration()) {
    columns.push_back({"waiting for data", Align::kRight});
    cells.push_back(to_string(result.waited_for_data));
  }
  columns.push_back({"exposed synchronisation", Align::kRight});
  cells.push_back(to_string(scaled(estimate.step_time, estimate.sync_share)));
  columns.push_back({"share", Align::kRight});
  cells.push_back(percent(estimate.sync_share));
  if (result.waited_for_others > Duration()) {
    columns.push_back({"others wait for the slowest", Align::kRight});
    cells.push_back(to_string(result.waited_for_others));
  }
  Table parts(std::move(columns));
  parts.add_row(std::move(cells));
  return parts.to_string();
}

}  // namespace

double throughput(const plan::Plan& plan, const sim::StepResult& result) {
  return static_cast<double>(plan.batch.global_batch()) / result.mean_step_time.seconds();
}

std::string busiest_links(const topology::Topology& cluster, std::vector<sim::LinkUse> links) {
  std::stable_sort(links.begin(), links.end(), [](const sim::LinkUse& a, const sim::LinkUse& b) {
    return a.utilization + a.background_utilization > b.utilization + b.background_utilization;
  });
  const bool has_background = std::any_of(links.begin(), links.end(), [](const sim::LinkUse& use) {
    return use.background > Bytes(0);
  });
  std::vector<Table::Column> columns{
      {"busiest links"}, {"tier"}, {"bytes", Align::kRight}, {"utilisation", Align::kRight}};
  if (has_background) {
    columns.push_back({"of others", Align::kRight});
    columns.push_back({"utilisation by them", Align::kRight});
  }
  Table table(columns);
  for (std::size_t i = 0; i < std::min(kRowsShown, links.size()); ++i) {
    std::vector<std::string> cells{cluster.link_name(links[i].link),
                                   cluster.link(links[i].link).tier, to_string(links[i].bytes),
                                   percent(links[i].utilization)};
    if (has_background) {
      cells.push_back(to_string(links[i].background));
      cells.push_back(percent(links[i].background_utilization));
    }
    table.add_row(std::move(cells));
  }
  return table.to_string();
}

std::string longest_queues(const topology::Topology& cluster, std::vector<sim::QueueUse> queues) {
  if (queues.empty()) {
    return "";
  }
  std::stable_sort(
      queues.begin(), queues.end(),
      [](const sim::QueueUse& a, const sim::QueueUse& b) { return a.longest > b.longest; });
  Table table({{"longest queues"},
               {"bytes", Align::kRight},
               {"marked packets", Align::kRight},
               {"pauses", Align::kRight},
               {"trimmed packets", Align::kRight}});
  for (std::size_t i = 0; i < std::min(kRowsShown, queues.size()); ++i) {
    table.add_row({cluster.link_name(queues[i].link), to_string(queues[i].longest),
                   std::to_string(queues[i].marks), std::to_string(queues[i].pauses),
                   std::to_string(queues[i].trims)});
  }
  return table.to_string() + "\n";
}

/// Rounding of rates to whole bytes makes some picoseconds.
constexpr Duration kLeastWait(1000);

void print_critical_path(const std::vector<sim::PathPiece>& path) {
  Table table({{"critical path"},
               {"from", Align::kRight},
               {"for", Align::kRight},
               {"waiting for shared links", Align::kRight}});
  // The longest pieces, in the order in which they happened.
  std::vector<std::size_t> order(path.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
  }
  const auto length = [&](std::size_t i) { return path[i].end - path[i].start; };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return length(a) > length(b); });
  order.resize(std::min(order.size(), kRowsShown));
  std::sort(order.begin(), order.end());
  for (const std::size_t i : order) {
    const sim::PathPiece& piece = path[i];
    table.add_row({piece.what, to_string(piece.start), to_string(piece.end - piece.start),
                   piece.waited >= kLeastWait ? to_string(piece.waited) : ""});
  }
  fmt::print("{}", table.to_string());
  if (order.size() < path.size()) {
    fmt::print("({} shorter pieces not shown)\n", path.size() - order.size());
  }
}

void print_step(const PlanInput& input, const sim::StepResult& result,
                const sim::SimulationOptions& options, double wall) {
  fmt::print("{} on {}\n\n", input.workload.name, input.cluster.name());
  if (result.steps.size() > 1) {
    print_steps(input.plan, result, options.report);
  }
  fmt::print("{}", parts_of_step(result));
  for (const HealthFigure& figure : health(result, input.cluster, options.loading.has_value())) {
    fmt::print("{} {}: {}{})\n", figure.what, figure.text(),
               figure.is_healthy ? "healthy (" : "not healthy (should be ", figure.limit);
  }
  fmt::print("\n");
  print_critical_path(result.records.critical_path);
  fmt::print("\n{}\n{}", busiest_links(input.cluster, result.links),
             longest_queues(input.cluster, result.queues));
  fmt::print("simulated {} flows with {} events in {:.3f} s\n", result.flows, result.events, wall);
}

void print_jobs(const topology::Topology& cluster, const sim::JobsResult& result, double wall) {
  fmt::print("{} jobs on {}\n\n", result.jobs.size(), cluster.name());
  Table table({{"job"},
               {"from", Align::kRight},
               {"to", Align::kRight},
               {"steps", Align::kRight},
               {"step time", Align::kRight},
               {"alone", Align::kRight},
               {"slowdown", Align::kRight},
               {"samples/s", Align::kRight}});
  for (const sim::JobResult& job : result.jobs) {
    table.add_row({job.name, to_string(job.steps.front().start), to_string(job.steps.back().end),
                   std::to_string(job.steps.size()),
                   to_string(Duration::from_seconds(job.step_time_s)),
                   to_string(Duration::from_seconds(job.step_time_alone_s)),
                   fmt::format("{:.3f}", job.slowdown), fmt::format("{:.1f}", job.samples_per_s)});
  }
  fmt::print("{}\n{}\n{}simulated {} flows with {} events in {:.3f} s\n", table.to_string(),
             busiest_links(cluster, result.links), longest_queues(cluster, result.queues),
             result.flows, result.events, wall);
}

void print_outages(const explore::OutageResult& result) {
  Table table({{"the run"},
               {"from", Align::kRight},
               {"to", Align::kRight},
               {"ranks", Align::kRight},
               {"step time", Align::kRight},
               {"steps", Align::kRight},
               {"of them lost", Align::kRight}});
  for (const explore::Phase& phase : result.phases) {
    const bool trains = phase.steps > 0;
    table.add_row({phase.what, to_string(phase.start), to_string(phase.end),
                   trains ? std::to_string(phase.ranks) : "",
                   trains ? to_string(phase.step_time) : "",
                   trains ? std::to_string(phase.steps) : "",
                   phase.lost > 0 ? std::to_string(phase.lost) : ""});
  }
  fmt::print("\n{}goodput {:.1f} samples/s, {} of what an undisturbed run has\n", table.to_string(),
             result.samples_per_s,
             percent(result.samples_per_s / result.undisturbed_samples_per_s));
}

}  // namespace rackrail::cli
