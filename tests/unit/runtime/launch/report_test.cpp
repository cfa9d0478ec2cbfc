#include "runtime/launch/report.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "base/error.hpp"

namespace rackrail::runtime::report_test {
namespace {

WorkerReport full_report() {
  WorkerReport report;
  report.rank = Rank(3);
  report.host = "host-\"a\"";
  report.pid = 4711;
  report.transport = "ucx";
  report.device = "NVIDIA H200";
  report.notes = {"one", "two"};
  report.first_step = 100;
  report.steps = 200;
  report.losses = {2.5, 1.0 / 3.0};
  report.final_loss = 0.1;
  report.final_accuracy = 0.975;
  report.final_test_loss = 0.2;
  report.skipped_steps = 1;
  report.parameters_digest = "abc";
  report.step_time = Duration(1'234'567'890'123);
  report.compute_time = 2_ms;
  report.compute_cpu_time = 3_ms;
  report.sync_time = 4_ms;
  report.input_wait = 5_ms;
  report.sync_share = 0.25;
  report.mean_step_time = 10_ms;
  report.updates = 12.5;
  report.conflicts = 6.25;
  report.stale_updates = 9;
  report.most_ahead = 4;
  report.bytes_sent = Bytes(std::numeric_limits<std::int64_t>::max());
  report.messages = 99;
  report.bytes_by_pair = {{{Rank(3), Rank(0)}, 10_B}, {{Rank(3), Rank(2)}, 20_B}};
  report.encode_time = 6_ms;
  report.decode_time = 7_ms;
  report.cpu_time = 8_s;
  report.wall_time = 9_s;
  report.membership_epochs = 2;
  report.timeline = {{"bucket 0", "rank 3 network", 1_us, 2_us}};
  return report;
}

}  // namespace

TEST_CASE("a report comes back from JSON as it was") {
  const WorkerReport report = full_report();
  const WorkerReport back = parse_worker_report(to_json(report));
  CHECK(to_json(back) == to_json(report));
  CHECK(back.rank == report.rank);
  CHECK(back.host == report.host);
  CHECK(back.losses == report.losses);
  CHECK(back.final_accuracy == report.final_accuracy);
  CHECK(back.step_time == report.step_time);
  CHECK(back.mean_step_time == 10_ms);
  CHECK(back.updates == 12.5);
  CHECK(back.conflicts == 6.25);
  CHECK(back.stale_updates == 9);
  CHECK(back.most_ahead == 4);
  CHECK(back.bytes_sent == report.bytes_sent);
  CHECK(back.bytes_by_pair == report.bytes_by_pair);
  REQUIRE(back.timeline.size() == 1);
  CHECK(back.timeline[0].track == "rank 3 network");
  CHECK(back.timeline[0].end == 2_us);
}

TEST_CASE("what was not measured stays absent") {
  const WorkerReport back = parse_worker_report(to_json(WorkerReport{}));
  CHECK_FALSE(back.final_accuracy.has_value());
  CHECK_FALSE(back.final_test_loss.has_value());
}

TEST_CASE("losses that are no numbers come back as such") {
  WorkerReport report;
  report.losses = {1, std::numeric_limits<double>::infinity(), std::nan("")};
  report.final_loss = std::nan("");
  report.final_test_loss = std::nan("");
  const WorkerReport back = parse_worker_report(to_json(report));
  REQUIRE(back.losses.size() == 3);
  CHECK(back.losses[0] == 1);
  CHECK(std::isnan(back.losses[1]));
  CHECK(std::isnan(back.losses[2]));
  CHECK(std::isnan(back.final_loss));
  CHECK(std::isnan(back.final_test_loss.value()));
}

TEST_CASE("a report that is none is refused with the field") {
  CHECK_THROWS_AS(parse_worker_report(""), RuntimeFailure);
  CHECK_THROWS_AS(parse_worker_report("[1]"), RuntimeFailure);
  CHECK_THROWS_WITH(parse_worker_report("{}"), Catch::Contains("rank: found nothing"));
  std::string wrong = to_json(full_report());
  wrong.replace(wrong.find("99"), 2, "\"\"");
  CHECK_THROWS_WITH(parse_worker_report(wrong), Catch::Contains("messages: found \"\""));
}

TEST_CASE("bytes that are no UTF-8 do not stop a report") {
  WorkerReport report = full_report();
  report.host = "bad\xff";
  CHECK_NOTHROW(parse_worker_report(to_json(report)));
}

}  // namespace rackrail::runtime::report_test
