#include "runtime/capi/context.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/build_config.hpp"
#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "plan/calibration.hpp"
#include "plan/device_class.hpp"
#include "plan/format.hpp"
#include "plan/reduced_error.hpp"
#include "runtime/capi/late_notice.hpp"
#include "runtime/coordinator/own_addresses.hpp"
#include "runtime/launch/gpu_worker.hpp"
#include "runtime/residual_limit.hpp"
#include "topology/reader.hpp"

namespace rackrail::capi {
namespace {

// A killed process is missed at once; this is for hosts that hang. A program that computes on all
// cores may keep a heartbeat from leaving for some seconds.
constexpr Duration kHeartbeatTimeout = 10_s;

/// Of as many ranks as the file has, which may be others than the job's.
topology::Topology described_cluster(const Settings& settings) {
  topology::Topology cluster = settings.cluster.empty()
                                   ? flat_cluster(settings.launch.world_size)
                                   : topology::read_cluster(settings.cluster).topology;
  plan::name_device_classes(cluster);
  if (!settings.calibration.empty()) {
    cluster.set_measured_processor(
        plan::measured_processor(plan::read_calibration(settings.calibration)));
  }
  return cluster;
}

topology::Topology cluster_of(const Settings& settings) {
  const std::size_t ranks = settings.launch.world_size;
  topology::Topology cluster = described_cluster(settings);
  if (cluster.rank_count() != ranks) {
    throw ConfigError(ErrorContext{.file = settings.cluster,
                                   .where = "ranks",
                                   .found = std::to_string(cluster.rank_count()),
                                   .expected = std::to_string(ranks) + ", as the job has"});
  }
  return cluster;
}

/// Of as many ranks as the file has.
std::optional<plan::Plan> described_plan(const Settings& settings,
                                         const topology::Topology& cluster) {
  if (settings.plan.empty()) {
    return std::nullopt;
  }
  // Where nobody described the cluster, there is nothing to hold the plan's against.
  return plan::load_plan(settings.plan, settings.cluster.empty() ? nullptr : &cluster);
}

std::optional<plan::Plan> plan_of(const Settings& settings, const topology::Topology& cluster) {
  std::optional<plan::Plan> plan = described_plan(settings, cluster);
  if (plan && plan->rank_count() != settings.launch.world_size) {
    throw PlanError(
        ErrorContext{.file = settings.plan,
                     .where = "ranks",
                     .found = std::to_string(plan->rank_count()),
                     .expected = std::to_string(settings.launch.world_size) + ", as the job has"});
  }
  return plan;
}

void scale(std::span<float> data, float factor) {
  if (factor != 1) {
    for (float& value : data) {
      value *= factor;
    }
  }
}

/// Ranks of each host of the cluster that somebody described, as JSON; [] where nobody has.
std::string described_hosts(const Settings& settings) {
  nlohmann::json hosts = nlohmann::json::array();
  if (!settings.cluster.empty()) {
    for (const topology::RankGroup& host : topology::ranks_by_host(cluster_of(settings))) {
      auto& ranks = hosts.emplace_back(nlohmann::json::array());
      for (const Rank rank : host.ranks) {
        ranks.push_back(rank.value());
      }
    }
  }
  return hosts.dump();
}

runtime::RankGroups parse_hosts(const std::string& text) {
  runtime::RankGroups hosts;
  for (const nlohmann::json& host : nlohmann::json::parse(text)) {
    auto& ranks = hosts.emplace_back();
    for (const nlohmann::json& rank : host) {
      ranks.emplace_back(rank.get<std::uint32_t>());
    }
  }
  return hosts;
}

/// PlanExecutor::set_call() of an array of so many elements, of which there is at least one.
std::uint32_t call_of(std::size_t elements) {
  constexpr std::size_t kMost = runtime::kEmptyCall - 1;
  return static_cast<std::uint32_t>((elements - 1) % kMost + 1);
}

// What rank 0 sends after it has planned: 'P' and the plan, or 'E' and a line.
constexpr char kPlan = 'P';
constexpr char kError = 'E';

}  // namespace

Context::Context(Settings settings) : settings_(std::move(settings)) {
  if (world_size() > 1) {
    join();
  } else {
    begin_alone();
  }
  states_.assign(elements_.size(), State::kIdle);
}

Context::~Context() {
  stall_.reset();
  session_.reset();
  server_.reset();
}

/// Nothing is sent, so no transport is opened, NCCL is not looked for, and files may be of the job
/// that this one is tried for; all else is refused as one of several ranks would refuse it.
void Context::begin_alone() {
  runtime::require_transport_name(settings_.transport);
  (void)described_plan(settings_, described_cluster(settings_));
  if (settings_.gpu) {
    take_gpu({.shares = true, .path = runtime::GpuPath::kStaged, .hosts = {}},
             [](const std::string& own) { return std::vector{own}; });
  }
  for (const Piece& piece : pieces()) {
    elements_.push_back(piece.elements);
  }
}

void Context::join() {
  if (settings_.gpu && settings_.gpu->shares) {
    no_nccl_ =
        runtime::share_gpu_as(rank(), runtime::is_loopback(settings_.launch.coordinator.host))
            .value_or("");
  }
  runtime::SessionOptions options;
  options.coordinator = settings_.launch.coordinator;
  if (rank().value() == 0) {
    const topology::Topology cluster = cluster_of(settings_);
    made_ = plan_of(settings_, cluster);
    runtime::CoordinatorOptions coordinator;
    coordinator.plan = plan::to_binary(plan_pieces(cluster, !settings_.gpu));
    coordinator.listen = runtime::everywhere(settings_.launch.coordinator);
    coordinator.token = settings_.token;
    coordinator.tls = runtime::tls_of_environment();
    coordinator.is_network_private = settings_.is_network_private;
    coordinator.membership.world_size = world_size();
    coordinator.membership.rendezvous_deadline = settings_.timeout;
    coordinator.membership.heartbeat_timeout = kHeartbeatTimeout;
    coordinator.membership.version = build_config::kVersion;
    server_ = std::make_unique<runtime::CoordinatorServer>(std::move(coordinator));
    options.coordinator = runtime::own_address(server_->address());
    if (settings_.on_listening) {
      settings_.on_listening(runtime::addresses_for_others(server_->address()));
    }
  }
  options.token = settings_.token;
  options.tls = runtime::tls_of_environment();
  options.is_network_private = settings_.is_network_private;
  options.rank = rank();
  options.world_size = world_size();
  options.transport = settings_.transport;
  options.rendezvous_deadline = settings_.timeout;
  const std::string where = server_ ? runtime::addresses_for_others(server_->address())
                                    : runtime::to_string(options.coordinator);
  const runtime::Inquirer inquirer{.coordinator = options.coordinator,
                                   .token = options.token,
                                   .token_source = {},
                                   .tls = options.tls,
                                   .is_network_private = options.is_network_private};
  const LateNotice notice(inquirer, where, rank(), world_size());
  session_ = std::make_unique<runtime::Session>(std::move(options));
  try {
    session_->join();
    session_->start(plan::parse_plan(session_->welcome().plan, "the job's plan"), {},
                    settings_.gpu ? gpu_executors() : runtime::MakeExecutor());
  } catch (const Error& error) {
    session_->fail({error.what(), error.is_bad_input()});
    throw;
  }
  stall_ = std::make_unique<StallNotice>(inquirer, rank());
  for (const plan::Bucket& bucket : session_->plan().buckets) {
    elements_.push_back(bucket.elements);
  }
}

runtime::MakeExecutor Context::gpu_executors() {
  const Exchange exchange = [this](const std::string& own) {
    return session_->coordinator().exchange(own);
  };
  runtime::GpuSettings settings{.shares = true, .path = settings_.gpu->path, .hosts = {}};
  if (settings.path == runtime::GpuPath::kHybrid) {  // which is by hosts as the plan has them
    settings.hosts =
        parse_hosts(exchange(rank().value() == 0 ? described_hosts(settings_) : "").front());
  }
  const runtime::GpuChoice choice = take_gpu(settings, exchange);
  return runtime::device_executors(choice, gpu_->stream());
}

runtime::GpuChoice Context::take_gpu(const runtime::GpuSettings& settings,
                                     const Exchange& exchange) {
  runtime::GpuChoice choice = runtime::agree_on_gpu(
      settings, rank(), {.computes = false, .device = settings_.gpu->device, .no_nccl = no_nccl_},
      exchange);
  gpu_ = runtime::make_gpu_arrays(choice.device);
  return choice;
}

void Context::require_place(const Array& array) const {
  if (array.is_on_gpu && !settings_.gpu) {
    throw ConfigError(
        ErrorContext{.file = {},
                     .where = "buffer.device",
                     .found = "RACKRAIL_CUDA",
                     .expected = "RACKRAIL_HOST, or a job whose configuration has RACKRAIL_CUDA"});
  }
  if (array.is_on_gpu && gpu_ != nullptr && !array.data.empty()) {
    gpu_->require(array.data.data());
  }
}

/// Floats of the GPU that stay from sum to sum: taking and releasing them may wait for all that the
/// device was given.
std::span<float> Context::room(trainer::Floats& memory, std::size_t size) {
  if (memory.size() < size) {
    memory = trainer::Floats();  // first, so that both need not be there at once
    memory = gpu_->make(size);
  }
  return memory.span().first(size);
}

/// The array where sums are made, multiplied; `copy` has its memory there if it is another.
std::span<float> Context::bring(const Array& array, trainer::Floats& copy, float factor) {
  if (gpu_ == nullptr) {
    scale(array.data, factor);
    return array.data;
  }
  std::span<float> here = array.data;
  if (array.is_on_gpu) {
    gpu_->follow(array.stream);
  } else {
    here = room(copy, array.data.size());
    gpu_->copy(array.data, here);
  }
  if (factor != 1) {
    gpu_->multiply(here, factor);
  }
  return here;
}

void Context::require_running() const {
  if (is_finished_) {
    throw ConfigError("the job was finished here, after which nothing is summed or planned");
  }
  if (over_) {
    throw PeerLostError(*over_);
  }
}

void Context::require_bucket(std::uint32_t bucket) const {
  const std::size_t first = pieces().size();
  if (bucket < first || bucket >= elements_.size()) {
    throw ConfigError(fmt::format("bucket {} was never planned for", bucket));
  }
}

void Context::require_nothing_under_way(const std::string& what) const {
  const auto count = std::count(states_.begin(), states_.end(), State::kStarted);
  if (count != 0) {
    throw ConfigError(
        fmt::format("{} while {} started and not waited for", what,
                    count == 1 ? "1 bucket was" : fmt::format("{} buckets were", count)));
  }
}

/// Calls `act` and takes note when the job ends in it.
template <typename Act>
void Context::watched(Act act) {
  try {
    act();
  } catch (const PeerLostError& error) {
    const std::string reason = session_->reason_of_loss(error);
    session_->abandon({reason, false});
    throw PeerLostError(over_.emplace(reason));
  }
}

void Context::next_step(std::uint32_t call) {
  if (session_ != nullptr) {
    session_->executor().set_call(call);
    session_->executor().begin_step(step_);
  }
  ++step_;
  if (session_ != nullptr) {
    session_->coordinator().set_progress({.step = step_, .loss = 0, .step_time = {}});
  }
  in_step_ = true;
  std::fill(states_.begin(), states_.end(), State::kIdle);
}

void Context::all_reduce(const Array& array, float factor) {
  const std::lock_guard lock(mutex_);
  require_running();
  require_nothing_under_way("an array was to be summed");
  require_place(array);
  if (session_ == nullptr) {
    follow_alone(array);
    settle_alone();
    return;  // of one rank the factor is 1
  }
  // Of none, one float is sent: those who gave some learn that this rank did not.
  std::array<float, 1> nothing{};
  const bool is_empty = array.data.empty();
  const std::span<float> data = is_empty && gpu_ == nullptr ? std::span<float>(nothing)
                                : is_empty                  ? room(copy_here_, 1)
                                                            : bring(array, copy_here_, factor);
  watched([&] {
    for (const std::vector<Part>& parts : cut(static_cast<std::int64_t>(data.size()))) {
      next_step(is_empty ? runtime::kEmptyCall : call_of(data.size()));
      const StallNotice::Wait wait(*stall_, step_);
      send_parts(parts, data);
    }
  });
  if (!is_empty && data.data() != array.data.data()) {
    gpu_->copy(data, array.data);
  }
}

void Context::send_parts(const std::vector<Part>& parts, std::span<float> data) {
  const Part& last = parts.back();
  const auto size = static_cast<std::size_t>(last.elements);
  std::span<float> padded;  // on the GPU, before sums are under way that taking it may wait for
  if (last.elements < last.piece_elements && gpu_ != nullptr) {
    padded = room(padded_here_, static_cast<std::size_t>(last.piece_elements));
    gpu_->clear(padded.subspan(size));
  }
  for (const Part& part : parts) {
    std::span<float> values =
        data.subspan(static_cast<std::size_t>(part.begin), static_cast<std::size_t>(part.elements));
    if (part.elements < part.piece_elements && gpu_ != nullptr) {
      gpu_->copy(values, padded.first(size));
      values = padded;
    } else if (part.elements < part.piece_elements) {
      padded_.assign(values.begin(), values.end());
      padded_.resize(static_cast<std::size_t>(part.piece_elements), 0.0F);
      values = padded_;
    }
    session_->executor().launch(part.bucket, values);
  }
  session_->executor().wait_all();
  if (!padded.empty()) {
    gpu_->copy(padded.first(size), data.subspan(static_cast<std::size_t>(last.begin), size));
  } else if (last.elements < last.piece_elements) {
    std::copy_n(padded_.begin(), last.elements, data.begin() + last.begin);
  }
}

std::uint32_t Context::plan(std::span<const BucketRequest> requests) {
  const std::lock_guard lock(mutex_);
  require_running();
  require_nothing_under_way("buckets were to be planned for");
  const auto first = static_cast<std::uint32_t>(elements_.size());
  if (session_ != nullptr) {
    watched([&] {
      const plan::Plan more = distribute(agree(requests));
      session_->adopt(joined(session_->plan(), more));
      planned_ = planned_.buckets.empty() ? more : joined(planned_, more);
    });
  }
  for (const BucketRequest& request : requests) {
    elements_.push_back(request.elements);
  }
  states_.assign(elements_.size(), State::kIdle);
  in_step_ = false;
  return first;
}

/// The same sizes on all ranks, and the latest times.
std::vector<BucketRequest> Context::agree(std::span<const BucketRequest> requests) {
  nlohmann::json own = nlohmann::json::object();
  for (const BucketRequest& request : requests) {
    own["elements"].push_back(request.elements);
    own["ready"].push_back(request.ready.picoseconds());
  }
  const std::vector<std::string> said = session_->coordinator().exchange(own.dump());
  std::vector<BucketRequest> agreed(requests.begin(), requests.end());
  const nlohmann::json of_rank_0 = nlohmann::json::parse(said[0]);
  for (std::size_t r = 0; r < said.size(); ++r) {
    const nlohmann::json its = nlohmann::json::parse(said[r]);
    if (its["elements"] != of_rank_0["elements"]) {
      throw ConfigError(fmt::format("rank {} plans for buckets of {} elements, rank 0 for {}", r,
                                    its["elements"].dump(), of_rank_0["elements"].dump()));
    }
    for (std::size_t b = 0; b < agreed.size(); ++b) {
      agreed[b].ready = std::max(agreed[b].ready, Duration(its["ready"][b].get<std::int64_t>()));
    }
  }
  return agreed;
}

plan::Plan Context::distribute(std::span<const BucketRequest> requests) {
  std::string made;
  if (rank().value() == 0) {
    try {
      made = kPlan + plan::to_binary(made_ ? plan_buckets_like(*made_, requests)
                                           : plan_buckets(cluster_of(settings_), requests,
                                                          settings_.codec, !settings_.gpu));
    } catch (const Error& error) {
      made = kError + std::string(error.what());
    }
  }
  const std::string told = session_->coordinator().exchange(made).front();
  if (told.empty() || told.front() != kPlan) {
    throw ConfigError("rank 0 has no plan: " + told.substr(std::min<std::size_t>(1, told.size())));
  }
  return plan::parse_plan(std::string_view(told).substr(1), "the plan of rank 0");
}

void Context::forget_errors() {
  const std::lock_guard lock(mutex_);
  require_running();
  require_nothing_under_way("codecs' errors were to be forgotten");
  if (session_ != nullptr) {
    runtime::Residuals kept = session_->executor().residuals();
    std::erase_if(kept, [](const auto& entry) {  // what is usual stays known
      return !entry.first.ends_with(runtime::kNormsSuffix);
    });
    session_->executor().set_residuals(std::move(kept));
  }
}

void Context::start(std::uint32_t bucket, const Array& array, float factor) {
  const std::lock_guard lock(mutex_);
  require_running();
  require_bucket(bucket);
  if (static_cast<std::int64_t>(array.data.size()) != elements_[bucket]) {
    throw ConfigError(fmt::format("bucket {} has {} elements, its plan is for {}", bucket,
                                  array.data.size(), elements_[bucket]));
  }
  require_place(array);
  if (states_[bucket] != State::kIdle || !in_step_) {
    require_nothing_under_way(fmt::format("bucket {} was started again", bucket));
    watched([&] { next_step(); });
  }
  if (session_ != nullptr) {
    launch(bucket, array, factor);
  } else {
    follow_alone(array);
  }
  states_[bucket] = State::kStarted;  // not when that has thrown: nobody would wait for it
}

/// A sum of one is there when what has written it is done, of which other streams know nothing.
void Context::follow_alone(const Array& array) {
  if (array.is_on_gpu) {
    gpu_->follow(array.stream);
  }
}

void Context::settle_alone() {
  if (gpu_ != nullptr) {
    gpu_->settle();
  }
}

void Context::launch(std::uint32_t bucket, const Array& array, float factor) {
  std::span<float> data;
  if (gpu_ != nullptr && !array.is_on_gpu) {
    HostCopy& copied = copies_[bucket];
    copied.host = array.data;
    data = bring(array, copied.here, factor);
  } else {
    if (const auto copied = copies_.find(bucket); copied != copies_.end()) {
      copied->second.host = {};
    }
    data = bring(array, copy_here_, factor);
  }
  watched([&] { session_->executor().launch(BucketId(std::size_t{bucket}), data); });
}

void Context::wait(std::uint32_t bucket) {
  std::unique_lock lock(mutex_);
  require_running();
  require_bucket(bucket);
  if (states_[bucket] != State::kStarted) {
    throw ConfigError(fmt::format("bucket {} was waited for and not started", bucket));
  }
  if (session_ != nullptr) {
    runtime::PlanExecutor& executor = session_->executor();  // stays as long as a bucket is started
    const StallNotice::Wait wait(*stall_, step_);
    lock.unlock();
    std::exception_ptr failure;
    try {
      executor.wait(BucketId(std::size_t{bucket}));
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    states_[bucket] = State::kWaitedFor;
    if (failure) {
      require_running();
      watched([&] { std::rethrow_exception(failure); });
    }
    if (const auto copied = copies_.find(bucket);
        copied != copies_.end() && !copied->second.host.empty()) {
      gpu_->copy(copied->second.here.span(), copied->second.host);
    }
  } else {
    settle_alone();
  }
  states_[bucket] = State::kWaitedFor;
}

std::string Context::describe() const {
  const std::lock_guard lock(mutex_);
  nlohmann::json list = nlohmann::json::array();
  for (const plan::Bucket& bucket : planned_.buckets) {
    const plan::TransferGraph& schedule = planned_.schedules[bucket.schedule];
    nlohmann::json entry = {{"elements", bucket.elements},
                            {"schedule", schedule.name()},
                            {"codec", plan::to_string(bucket.codec)},
                            {"error", plan::reduced_error(schedule, plan::relative_error)}};
    for (const auto& [tier, codec] : bucket.codec_tiers) {
      entry["codec_tiers"][tier] = plan::to_string(codec);
    }
    list.push_back(std::move(entry));
  }
  if (session_ == nullptr) {
    for (std::size_t bucket = pieces().size(); bucket < elements_.size(); ++bucket) {
      list.push_back({{"elements", elements_[bucket]},
                      {"schedule", "none"},
                      {"codec", plan::to_string(plan::Codec{})},
                      {"error", 0}});
    }
  }
  return list.dump();
}

void Context::finish() {
  const std::lock_guard lock(mutex_);
  require_running();
  require_nothing_under_way("the job was to end");
  over_ = "the job was finished";
  is_finished_ = session_ == nullptr;
  if (is_finished_) {
    return;
  }
  bool have_all_ended = false;
  try {
    have_all_ended = session_->finish("", runtime::kEndPatience, step_);
  } catch (const PeerLostError& error) {
    over_ = error.what();
    session_->fail({error.what(), false});
    throw;
  }
  is_finished_ = true;
  if (server_ != nullptr && have_all_ended) {
    (void)server_->wait_for(
        runtime::kEndPatience);  // for the others to have heard that all is well
  }
}

void Context::abort(const std::string& reason) {
  if (session_ != nullptr) {
    session_->abandon({reason, false});  // those who hold the mutex wait no longer
  }
  const std::lock_guard lock(mutex_);
  if (!over_) {
    over_ = reason;
  }
}

}  // namespace rackrail::capi
