#include "runtime/coordinator/messages.hpp"

#include <cmath>
#include <optional>
#include <utility>

#include "runtime/coordinator/coordinator.pb.h"
#include "runtime/coordinator/grpc_setup.hpp"

namespace rackrail::runtime {
namespace {

namespace proto = rackrail::coordinator::v1;

constexpr std::size_t kLongestText = 255;

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

/// None where they cannot be norms.
std::optional<GradientNorms> norms_of(const proto::GradientNorms& norms) {
  const auto is_possible = [](double square) { return std::isfinite(square) && square >= 0; };
  if (!is_possible(norms.weighted_squared()) || !is_possible(norms.mean_squared())) {
    return std::nullopt;
  }
  return GradientNorms{norms.weighted_squared(), norms.mean_squared()};
}

}  // namespace

std::string malformed(const proto::JoinRequest& message) {
  constexpr std::size_t kLargestAddress = 64U << 10U;
  if (message.address().size() > kLargestAddress) {
    return "a transport address of " + std::to_string(message.address().size()) +
           " bytes, expected at most " + std::to_string(kLargestAddress);
  }
  if (message.host().size() > kLongestText || message.version().size() > kLongestText ||
      message.plan_digest().size() > kLongestText) {
    return "a host, version or digest of more than " + std::to_string(kLongestText) + " characters";
  }
  return "";
}

std::string malformed(const proto::CheckpointReport& message) {
  constexpr int kMostFiles = 64;
  if (message.files_size() > kMostFiles) {
    return std::to_string(message.files_size()) + " files of one rank, expected at most " +
           std::to_string(kMostFiles);
  }
  for (const proto::CheckpointFile& file : message.files()) {
    const bool is_plain = !file.name().empty() && file.name().size() <= kLongestText &&
                          file.name().find('/') == std::string::npos && file.name()[0] != '.';
    if (!is_plain || file.sha256().size() > kLongestText || file.bytes() < 0) {
      return "a file that cannot be part of a checkpoint: '" + one_line(file.name()) + "' of " +
             std::to_string(file.bytes()) + " bytes";
    }
  }
  return "";
}

JoinRequest from_message(const proto::JoinRequest& message) {
  JoinRequest request;
  if (message.has_rank()) {
    request.rank = Rank(std::size_t{message.rank()});
  }
  request.world_size = message.world_size();
  request.address = bytes_of(message.address());
  request.plan_digest = one_line(message.plan_digest());
  request.host = one_line(message.host());
  request.pid = message.pid();
  request.version = one_line(message.version());
  if (message.has_returning()) {
    const proto::Returning& returning = message.returning();
    request.returning = Returning{.seat = Rank(std::size_t{returning.seat()}),
                                  .epoch = returning.epoch(),
                                  .step = returning.step(),
                                  .oldest_step = returning.oldest_step(),
                                  .has_parameters = returning.has_parameters()};
  }
  return request;
}

proto::JoinRequest to_message(const JoinRequest& request) {
  proto::JoinRequest message;
  if (request.rank) {
    message.set_rank(request.rank->value());
  }
  message.set_world_size(static_cast<std::uint32_t>(request.world_size));
  message.set_address(request.address.data(), request.address.size());
  message.set_plan_digest(request.plan_digest);
  message.set_host(request.host);
  message.set_pid(request.pid);
  message.set_version(request.version);
  if (request.returning) {
    proto::Returning& returning = *message.mutable_returning();
    returning.set_seat(request.returning->seat.value());
    returning.set_epoch(request.returning->epoch);
    returning.set_step(request.returning->step);
    returning.set_oldest_step(request.returning->oldest_step);
    returning.set_has_parameters(request.returning->has_parameters);
  }
  return message;
}

std::vector<CheckpointFile> from_message(const proto::CheckpointReport& message) {
  std::vector<CheckpointFile> files;
  files.reserve(static_cast<std::size_t>(message.files_size()));
  for (const proto::CheckpointFile& file : message.files()) {
    files.push_back({file.name(), file.sha256(), Bytes(file.bytes())});
  }
  return files;
}

void put_files(const std::vector<CheckpointFile>& files, proto::CheckpointReport& message) {
  for (const CheckpointFile& file : files) {
    proto::CheckpointFile& entry = *message.add_files();
    entry.set_name(file.name);
    entry.set_sha256(file.sha256);
    entry.set_bytes(file.size.count());
  }
}

std::vector<StepMeasurement> measured_steps(const proto::HeartbeatRequest& message,
                                            std::size_t world_size) {
  const Rank self(std::size_t{message.member().rank()});
  std::vector<StepMeasurement> steps;
  for (const proto::MeasuredStep& one : message.measured()) {
    const bool is_possible = self.index() < world_size && one.samples() > 0 &&
                             one.step_time_ps() >= 0 && one.compute_time_ps() >= 0;
    if (!is_possible || steps.size() >= std::size_t{kMostMeasured}) {
      continue;
    }
    StepMeasurement step{.rank = self,
                         .step = one.step(),
                         .samples = one.samples(),
                         .step_time = Duration(one.step_time_ps()),
                         .compute_time = Duration(one.compute_time_ps()),
                         .received = {}};
    for (const proto::ReceivedTraffic& traffic : one.received()) {
      if (traffic.source() < world_size && traffic.bytes() >= 0 && traffic.busy_ps() >= 0 &&
          step.received.size() < world_size) {
        step.received.push_back({Rank(std::size_t{traffic.source()}), Bytes(traffic.bytes()),
                                 Duration(traffic.busy_ps())});
      }
    }
    if (one.has_norms()) {
      step.norms = norms_of(one.norms());
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

void put_measured(const StepMeasurement& step, proto::HeartbeatRequest& message) {
  proto::MeasuredStep& one = *message.add_measured();
  one.set_step(step.step);
  one.set_samples(step.samples);
  one.set_step_time_ps(step.step_time.picoseconds());
  one.set_compute_time_ps(step.compute_time.picoseconds());
  if (step.norms) {
    one.mutable_norms()->set_weighted_squared(step.norms->weighted_squared);
    one.mutable_norms()->set_mean_squared(step.norms->mean_squared);
  }
  for (const PairTraffic& traffic : step.received) {
    proto::ReceivedTraffic& entry = *one.add_received();
    entry.set_source(traffic.source.value());
    entry.set_bytes(traffic.bytes.count());
    entry.set_busy_ps(traffic.busy.picoseconds());
  }
}

Welcome take_welcome(proto::Welcome& message) {
  Welcome welcome;
  welcome.rank = Rank(std::size_t{message.rank()});
  welcome.world_size = message.world_size();
  welcome.epoch = message.epoch();
  welcome.step = message.step();
  welcome.seat = Rank(std::size_t{message.seat()});
  welcome.heartbeat_period = Duration(message.heartbeat_period_ps());
  welcome.heartbeat_timeout = Duration(message.heartbeat_timeout_ps());
  for (const std::uint32_t rank : message.newcomers()) {
    welcome.newcomers.emplace_back(std::size_t{rank});
  }
  welcome.checkpoint = message.checkpoint();
  welcome.transport_key = message.transport_key();
  for (const std::string& address : message.addresses()) {
    welcome.addresses.push_back(bytes_of(address));
  }
  welcome.plan = std::move(*message.mutable_plan());
  welcome.job_options = std::move(*message.mutable_job_options());
  return welcome;
}

}  // namespace rackrail::runtime
