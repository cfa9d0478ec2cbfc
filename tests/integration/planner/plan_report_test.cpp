// The report on a plan against plans that are made or changed by hand and simulated again.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "planner/planner.hpp"
#include "planner/search/plan_report.hpp"
#include "sim/simulator.hpp"
#include "tests/support/clusters.hpp"
#include "topology/reader.hpp"

namespace rackrail::planner::plan_report_test {
namespace {

topology::Topology cluster() { return topology::read_cluster("two-racks-40g").topology; }

plan::Workload model(const char* name) {
  return plan::read_workload(name, topology::configs_folder());
}

const Alternative* find(const std::vector<Alternative>& list, const std::string& name) {
  const auto it = std::find_if(list.begin(), list.end(),
                               [&](const Alternative& one) { return one.name == name; });
  return it == list.end() ? nullptr : &*it;
}

TEST_CASE("two racks at 40 Gbit/s train BERT faster with the joint plan than with any one knob",
          "[slow]") {
  const topology::Topology topology = cluster();
  const plan::Workload workload = model("bert-large");
  const auto costs = sim::make_cost_model(topology, {});
  const ExplainedPlan explained = make_explained_plan(topology, workload, *costs, {});
  const Duration step = explained.plan.prediction.step_time;

  // Each knob alone, by options.
  PlannerOptions usual;
  usual.compare_baselines = false;
  usual.codec = plan::Codec{};
  usual.schedule = "ring";
  usual.bucket_size = 25_MiB;
  std::map<std::string, PlannerOptions> knobs = {
      {"routes only", usual}, {"buckets only", usual}, {"codecs only", usual}};
  knobs.at("routes only").schedule.reset();
  knobs.at("buckets only").bucket_size.reset();
  knobs.at("codecs only").codec.reset();
  REQUIRE(explained.report.single_knobs.size() == knobs.size());
  for (const auto& [name, options] : knobs) {
    CAPTURE(name);
    const Duration alone = make_plan(topology, workload, *costs, options).prediction.step_time;
    const Alternative* row = find(explained.report.single_knobs, name);
    REQUIRE(row != nullptr);
    CHECK(row->step_time == alone);
    CHECK(row->against_plan == Approx(alone / step - 1));
    CHECK(step < scaled(alone, 0.99));
  }

  const Alternative* ddp = find(explained.report.baselines, "DDP-like");
  REQUIRE(ddp != nullptr);
  CHECK(ddp->step_time == make_naive_plan(topology, workload, *costs, {}).prediction.step_time);
  const Alternative* fp16 = find(explained.report.baselines, "all FP16");
  REQUIRE(fp16 != nullptr);
  CHECK(step <= scaled(fp16->step_time, 1 + kWorthwhile));

  PlannerOptions free;
  free.protect_outer_layers = false;
  REQUIRE(explained.report.unprotected.has_value());
  CHECK(explained.report.unprotected->step_time ==
        make_plan(topology, workload, *costs, free).prediction.step_time);
}

/// Two hosts of the shipped a100-8x8, with half of its GPUs, and NICs of 25 Gbit/s.
constexpr const char* kSlowNics = R"(
name: a100-2x4-25g
device_classes:
  A100: { memory: 40 GB }
link_classes:
  eth25: { bandwidth: 25 Gbit/s, latency: 455 ns, overhead: 300 ns }
  hdr: { bandwidth: 200 Gbit/s, latency: 455 ns, overhead: 300 ns }
node_types:
  host:
    gpus: 4
    device_class: A100
    nvlink: { bandwidth: 300 GB/s, latency: 300 ns }
    pcie: { bandwidth: 31.5 GB/s, latency: 500 ns, gpus_per_switch: 2 }
    nics: { count: 4, link: eth25 }
racks: { count: 2, hosts: 1, type: host }
network:
  wiring: leaf-spine
  spine: { count: 2, cables: 4, link: hdr, latency: 230 ns }
)";

TEST_CASE("routes, codecs and batch together train faster than any of them alone by a quarter",
          "[slow]") {
  const topology::Topology topology =
      topology::read_cluster_text("a100-2x4-25g.yaml", kSlowNics).topology;
  plan::Workload workload = model("vgg-16");
  workload.noise_scale = 4000;  // so that the batch is chosen, too
  const auto costs = sim::make_cost_model(topology, {});
  const ExplainedPlan explained = make_explained_plan(topology, workload, *costs, {});
  const plan::Plan& plan = explained.plan;
  CHECK(std::ranges::any_of(plan.buckets, [&](const plan::Bucket& bucket) {
    return plan.schedules[bucket.schedule].name() != "ring" && bucket.codec.is_lossy();
  }));
  CHECK(plan.batch.global_batch() != 8 * workload.profiled_batch);

  // By options, each with the others as without a planner; time per useful sample is what counts.
  const auto cost = [](const plan::Plan& one) {
    const auto batch = static_cast<double>(one.batch.global_batch());
    return one.prediction.step_time.seconds() * (4000 + batch) / batch;
  };
  PlannerOptions usual;
  usual.compare_baselines = false;
  usual.codec = plan::Codec{};
  usual.schedule = "ring";
  usual.bucket_size = 25_MiB;
  std::map<std::string, PlannerOptions> knobs = {{"batch only", usual}};
  usual.local_batch = workload.profiled_batch;
  for (const char* name : {"routes only", "buckets only", "codecs only"}) {
    knobs.emplace(name, usual);
  }
  knobs.at("routes only").schedule.reset();
  knobs.at("buckets only").bucket_size.reset();
  knobs.at("codecs only").codec.reset();
  REQUIRE(explained.report.single_knobs.size() == knobs.size());
  for (const auto& [name, options] : knobs) {
    CAPTURE(name);
    const double alone = cost(make_plan(topology, workload, *costs, options));
    const Alternative* row = find(explained.report.single_knobs, name);
    REQUIRE(row != nullptr);
    CHECK(alone > 1.25 * cost(plan));
    CHECK(row->against_plan == Approx(alone / cost(plan) - 1).epsilon(0.01));
  }
}

TEST_CASE("the plan that is explained is the plan that is made", "[slow]") {
  const topology::Topology topology = cluster();
  const plan::Workload workload = model("vgg-16");
  const auto costs = sim::make_cost_model(topology, {});
  const plan::Plan plan = make_plan(topology, workload, *costs, {});
  const ExplainedPlan explained = make_explained_plan(topology, workload, *costs, {});
  CHECK(explained.plan.prediction.step_time == plan.prediction.step_time);
  CHECK(explained.plan.notes == plan.notes);
}

TEST_CASE("what a choice buys is the step without it, and choices come by what they buy",
          "[slow]") {
  const topology::Topology topology = cluster();
  plan::Workload workload = model("vgg-16");
  workload.noise_scale = 4000;
  const auto costs = sim::make_cost_model(topology, {});
  const ExplainedPlan explained = make_explained_plan(topology, workload, *costs, {});
  const plan::Plan& plan = explained.plan;
  const auto& choices = explained.report.choices;
  CHECK(std::is_sorted(
      choices.begin(), choices.end(),
      [](const Alternative& a, const Alternative& b) { return a.against_plan > b.against_plan; }));

  plan::Plan in_order = plan;
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    in_order.buckets[b].priority = static_cast<std::uint32_t>(b);
  }
  const Alternative* priorities = find(choices, "priorities");
  REQUIRE((priorities != nullptr) == (plan.buckets.size() > 1));
  if (priorities != nullptr) {
    CHECK(priorities->step_time == costs->step(in_order, workload).step_time);
  }

  plan::Plan profiled = plan;
  profiled.batch.local_batch.assign(plan.rank_count(), workload.profiled_batch);
  profiled.batch.accumulation = 1;
  const Alternative* batch = find(choices, "batch");
  REQUIRE((batch != nullptr) == (profiled.batch.global_batch() != plan.batch.global_batch()));
  REQUIRE(batch != nullptr);
  const Duration step = costs->step(profiled, workload).step_time;
  CHECK(batch->step_time == step);
  CHECK(batch->global_batch == profiled.batch.global_batch());
  // E(B) = (N + B₀)/(N + B): the base batch cancels out.
  const auto cost = [](Duration time, std::int64_t samples) {
    return time.seconds() * (4000 + static_cast<double>(samples)) / static_cast<double>(samples);
  };
  CHECK(batch->against_plan ==
        Approx(cost(step, batch->global_batch) /
                   cost(plan.prediction.step_time, plan.batch.global_batch()) -
               1));
}

/// Two fast hosts and three slow ones behind a switch.
topology::Topology unlike_devices() {
  topology::Topology topology("unlike devices");
  const NodeId fabric = topology.add_node({.name = "switch", .kind = topology::NodeKind::kSwitch});
  for (const char* device_class : {"A100", "A100", "V100", "V100", "V100"}) {
    const std::string host = "host" + std::to_string(topology.rank_count());
    const NodeId node = topology.add_node({.name = host,
                                           .kind = topology::NodeKind::kGpu,
                                           .host = host,
                                           .device_class = device_class,
                                           .memory = 64_GiB});
    topology.add_rank(node);
    topology.add_duplex_link({.from = node, .to = fabric, .bandwidth = 25_Gbps, .latency = 1_us});
  }
  return topology;
}

TEST_CASE("rows are held against the plan as it is handed over, with its large buckets divided",
          "[slow]") {
  const topology::Topology topology = test::rail_racks({.hosts = 1});
  plan::Workload workload;
  workload.name = "large, then small";
  workload.profiled_batch = 8;
  workload.tensors = {{.name = "large", .elements = 1 << 27, .ready_gap = 1_ms},
                      {.name = "small", .elements = 1 << 18, .ready_gap = 1_ms}};
  PlannerOptions options;
  options.codec = plan::Codec{};
  options.bucket_size = 1_MiB;
  const auto costs = sim::make_cost_model(topology, {});
  const ExplainedPlan explained = make_explained_plan(topology, workload, *costs, options);
  const plan::Plan& plan = explained.plan;
  REQUIRE(plan.buckets.size() == 2);
  const Duration step = plan.prediction.step_time;
  CHECK(step == costs->step(plan, workload).step_time);
  for (const auto* rows :
       {&explained.report.choices, &explained.report.baselines, &explained.report.single_knobs}) {
    for (const Alternative& row : *rows) {
      CAPTURE(row.name);
      CHECK(row.against_plan == Approx(row.step_time / step - 1).margin(1e-9));
    }
  }
  const Alternative* undivided = find(explained.report.choices, "fine division");
  REQUIRE(undivided != nullptr);
  CHECK(undivided->step_time > scaled(step, 1.003));
  // What another choice leaves as it is stays divided.
  plan::Plan in_order = plan;
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    in_order.buckets[b].priority = static_cast<std::uint32_t>(b);
  }
  const Alternative* priorities = find(explained.report.choices, "priorities");
  REQUIRE(priorities != nullptr);
  CHECK(priorities->step_time == costs->step(in_order, workload).step_time);
}

TEST_CASE("where devices differ, batches that differ count as a choice, and rows say their batch") {
  const topology::Topology topology = unlike_devices();
  const plan::Workload workload = model("resnet-50");
  const auto costs = sim::make_cost_model(topology, {});
  const ExplainedPlan explained = make_explained_plan(topology, workload, *costs, {});
  const plan::Plan& plan = explained.plan;
  const PlanReport& report = explained.report;
  const Duration step = plan.prediction.step_time;
  REQUIRE(plan.batch.local_batch.front() > plan.batch.local_batch.back());
  REQUIRE(plan.batch.global_batch() == 160);

  plan::Plan even = plan;
  even.batch.local_batch.assign(5, 32);
  REQUIRE(!report.choices.empty());
  CHECK(report.choices.front().name == "unequal batches");
  CHECK(report.choices.front().step_time == costs->step(even, workload).step_time);
  CHECK(report.choices.front().against_plan > 0.5);
  CHECK_THAT(report.choices.front().what, Catch::Contains("32 samples on every rank instead of ") &&
                                              Catch::EndsWith(" samples on a rank"));

  PlannerOptions usual;
  usual.compare_baselines = false;
  usual.codec = plan::Codec{};
  usual.schedule = "ring";
  usual.bucket_size = 25_MiB;
  std::map<std::string, PlannerOptions> knobs = {{"batch only", usual}};
  usual.local_batch = 32;
  for (const char* name : {"routes only", "buckets only", "codecs only"}) {
    knobs.emplace(name, usual);
  }
  knobs.at("routes only").schedule.reset();
  knobs.at("buckets only").bucket_size.reset();
  knobs.at("codecs only").codec.reset();
  REQUIRE(report.single_knobs.size() == knobs.size());
  for (const Alternative& row : report.single_knobs) {
    CAPTURE(row.name);
    CHECK(row.step_time ==
          make_plan(topology, workload, *costs, knobs.at(row.name)).prediction.step_time);
    CHECK(row.against_plan > 0);
    CHECK_THAT(row.what, Catch::EndsWith(row.name == "batch only" ? " samples on a rank"
                                                                  : "; 32 samples on every rank"));
  }
  CHECK(report.single_knobs.front().name == "batch only");

  const Alternative* ddp = find(report.baselines, "DDP-like");
  REQUIRE(ddp != nullptr);
  CHECK(ddp->step_time == make_naive_plan(topology, workload, *costs, {}).prediction.step_time);
  CHECK(ddp->step_time == plan.prediction.baselines.at("naive ring fp32 25 MiB"));
  for (const Alternative& row : report.baselines) {
    CAPTURE(row.name);
    CHECK_THAT(row.what, Catch::EndsWith("; 32 samples on every rank"));
    CHECK(row.against_plan == Approx(row.step_time / step - 1));
    CHECK(step < scaled(row.step_time, 0.65));
  }
  CHECK(std::ranges::any_of(plan.notes, [](const std::string& note) {
    return note.starts_with(
        "the naive baseline (FP32 ring, 25 MiB buckets), with 32 samples on every rank, takes ");
  }));
}

TEST_CASE("a report has no rows for choices that the options made") {
  const topology::Topology topology = cluster();
  const plan::Workload workload = model("resnet-50");
  const auto costs = sim::make_cost_model(topology, {});
  PlannerOptions options;
  options.schedule = "ring";
  options.codec = plan::Codec{};
  options.bucket_size = 25_MiB;
  const ExplainedPlan explained = make_explained_plan(topology, workload, *costs, options);
  for (const char* made : {"routes", "codecs", "codecs inside groups", "bucket size", "batch"}) {
    CAPTURE(made);
    CHECK(find(explained.report.choices, made) == nullptr);
  }
  CHECK(!explained.report.unprotected.has_value());
  for (const Alternative& knob : explained.report.single_knobs) {
    CAPTURE(knob.name);
    CHECK(knob.step_time == explained.plan.prediction.step_time);
  }
}

}  // namespace
}  // namespace rackrail::planner::plan_report_test
