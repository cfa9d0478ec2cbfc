#include "tests/unit/runtime/launch/test_job.hpp"

#include "runtime/trainer/config.hpp"
#include "runtime/trainer/profile.hpp"
#include "tests/support/paths.hpp"

namespace rackrail::runtime::test {
namespace {

std::filesystem::path training_file() {
  return rackrail::test::source_dir() / "configs/training/of-a-test.yaml";
}

plan::TransferGraph star(std::size_t ranks) {
  plan::TransferGraph graph("star", plan::Collective::kAllReduce, ranks, {1});
  std::vector<TransferId> reductions;
  for (std::size_t rank = 1; rank < ranks; ++rank) {
    plan::Transfer transfer;
    transfer.src = Rank(rank);
    transfer.dst = Rank(0);
    transfer.op = plan::TransferOp::kReduce;
    reductions.push_back(graph.add_transfer(transfer, {}));
  }
  for (std::size_t rank = 1; rank < ranks; ++rank) {
    plan::Transfer transfer;
    transfer.src = Rank(0);
    transfer.dst = Rank(rank);
    graph.add_transfer(transfer, reductions);
  }
  return graph;
}

}  // namespace

std::string training_text(std::int64_t steps, std::int64_t checkpoint_every) {
  return R"(name: of-a-test
data:
  file: ../data/digits.csv
  image: [8, 8, 1]
  classes: 10
  maximum: 16
  test_share: 0.2
model:
  kind: mlp
  hidden: [32]
optimizer:
  base_learning_rate: 0.1
  base_batch: 128
  momentum: 0.9
local_batch: 16
seed: 1
evaluate_every: 0
steps: )" +
         std::to_string(steps) + "\ncheckpoint_every: " + std::to_string(checkpoint_every) + "\n";
}

plan::Plan make_plan(std::size_t ranks) {
  const trainer::TrainingConfig config =
      trainer::parse_training_config(training_text(1, 0), training_file());
  const auto model =
      trainer::make_model(config.model, config.data.format.image, config.data.format.classes, 1);
  const plan::Workload workload = trainer::workload_shape(config.name, *model);
  plan::Plan plan;
  plan.name = "of-a-test";
  plan.cluster_name = "of-a-test";
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    plan.rank_names.push_back("host" + std::to_string(rank));
  }
  plan.workload_name = workload.name;
  plan.workload_digest = workload.digest();
  plan.schedules.push_back(star(ranks));
  for (std::size_t tensor = 0; tensor < workload.tensors.size(); ++tensor) {
    plan::Bucket bucket;
    bucket.tensors = {static_cast<std::uint32_t>(tensor)};
    bucket.elements = workload.tensors[tensor].elements;
    bucket.slice_elements = 1024;
    plan.buckets.push_back(bucket);
  }
  plan.batch.local_batch.assign(ranks, 16);
  return plan;
}

JobOptions make_options(const std::string& script, std::int64_t steps,
                        std::int64_t checkpoint_every) {
  JobOptions options;
  options.training = training_text(steps, checkpoint_every);
  options.training_file = training_file();
  options.worker_command = {RACKRAIL_SCRIPTED_WORKER, script};
  options.heartbeat_period = 100_ms;
  options.heartbeat_timeout = 20_s;
  options.rendezvous_deadline = 40_s;
  return options;
}

}  // namespace rackrail::runtime::test
