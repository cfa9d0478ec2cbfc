#include "runtime/trainer/profile.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <thread>

#include "tests/unit/runtime/trainer/test_data.hpp"
#include "topology/reader.hpp"

namespace rackrail::trainer::profile_test {
namespace {

TEST_CASE("The workload of a training is that of its model, with measured times") {
  const TrainingConfig config = test::small_config();
  const auto model =
      make_model(config.model, config.data.format.image, config.data.format.classes, config.seed);
  const DataSplit data = test::make_split(config, 60, 20);
  const MeasuredProfile profile = profile_model(*model, config.optimizer, data.train, {16, 5, 1});
  CHECK(profile.local_batch == 16);
  CHECK(profile.fixed_share >= 0.0);
  CHECK(profile.fixed_share <= 1.0);

  const std::string digest = workload_shape("anything", *model).digest();
  for (const ProfileClock clock : {ProfileClock::kWall, ProfileClock::kThreadCpu}) {
    const plan::Workload workload = make_workload(config, *model, profile, clock);
    CHECK(workload.name == "small");
    CHECK(workload.digest() == digest);
    CHECK(workload.device_class == "cpu");
    CHECK(workload.profiled_batch == 16);
    REQUIRE(workload.tensors.size() == model->tensors().size());
    for (std::size_t t = 0; t < workload.tensors.size(); ++t) {
      CHECK(workload.tensors[t].name == model->tensors()[t].name);
      CHECK(workload.tensors[t].elements == model->tensors()[t].elements);
      CHECK(workload.tensors[t].ready_gap >= Duration());
    }
    CHECK(workload.forward > Duration());
    CHECK(workload.backward() > Duration());
    CHECK(workload.optimizer > Duration());
    CHECK(workload.memory_fixed == workload.gradient_bytes() * 3);
    CHECK(workload.base_batch == config.base_batch);
    CHECK(workload.base_learning_rate == config.base_learning_rate);
  }
}

TEST_CASE("A training is measured beside others, whose time is not counted", "[slow]") {
  const TrainingConfig config = read_training_config("digits-mlp", topology::configs_folder());
  // Steps of several of a scheduler's turns: a shorter one may fall between two of them.
  ProfileOptions options{.local_batch = 256, .steps = 3, .warmup = 1};
  options.others = 2 * std::max(1U, std::thread::hardware_concurrency());
  const plan::Workload by_cpu = profile_training(config, options, ProfileClock::kThreadCpu);
  CHECK(by_cpu.forward > Duration());
  CHECK(by_cpu.optimizer > Duration());
  // More than two threads on a core: by the clock on the wall it takes twice as long and more.
  const plan::Workload by_wall = profile_training(config, options, ProfileClock::kWall);
  const auto whole = [](const plan::Workload& workload) {
    return workload.forward + workload.backward() + workload.optimizer;
  };
  INFO("by the wall " << whole(by_wall).seconds() << " s, of a core " << whole(by_cpu).seconds()
                      << " s");
  CHECK(whole(by_wall) > scaled(whole(by_cpu), 1.5));
}

TEST_CASE("A plan for one rank has every tensor") {
  const TrainingConfig config = test::small_config();
  const auto model =
      make_model(config.model, config.data.format.image, config.data.format.classes, config.seed);
  const plan::Workload workload = workload_shape("small", *model);
  const plan::Plan plan = single_rank_plan(workload, 16);
  CHECK(plan.rank_count() == 1);
  CHECK(plan.workload_digest == workload.digest());
  CHECK(plan.batch.global_batch() == 16);
  REQUIRE(plan.buckets.size() == workload.tensors.size());
  std::int64_t elements = 0;
  for (const plan::Bucket& bucket : plan.buckets) {
    elements += bucket.elements;
  }
  CHECK(elements == workload.elements());
}

}  // namespace
}  // namespace rackrail::trainer::profile_test
