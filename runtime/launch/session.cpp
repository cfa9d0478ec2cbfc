#include "runtime/launch/session.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "base/build_config.hpp"
#include "base/error.hpp"
#include "plan/format.hpp"
#include "runtime/missed_peer.hpp"

namespace rackrail::runtime {
namespace {

constexpr Duration kCloseDeadline = 2_s;
// With a lost peer, what is under way to it never arrives.
constexpr Duration kDisconnectDeadline = 50_ms;

/// The wanted transport, or the first other one that works between processes.
std::unique_ptr<Transport> open_transport(const std::string& wanted, bool or_another,
                                          std::vector<std::string>& notes) {
  std::string reason;
  try {
    return make_transport(wanted);
  } catch (const RuntimeFailure& error) {
    if (!or_another) {
      throw;
    }
    reason = error.what();
  }
  for (const TransportKind& kind : transport_kinds()) {
    if (kind.name == wanted || kind.name == "in-process" || kind.unavailable) {
      continue;
    }
    std::unique_ptr<Transport> transport = make_transport(kind.name);
    notes.push_back("gradients move over " + kind.name + ", because " + reason);
    return transport;
  }
  throw RuntimeFailure("no transport between processes can be used: " + reason);
}

// Addresses travel with the transport's name before them, so that two ranks with different
// transports find out before they try to connect.

std::vector<std::byte> named_address(const Transport& transport) {
  const std::string_view name = transport.name();
  std::vector<std::byte> result;
  for (const char c : name) {
    result.push_back(static_cast<std::byte>(c));
  }
  result.push_back(std::byte{0});
  const std::vector<std::byte> address = transport.address();
  result.insert(result.end(), address.begin(), address.end());
  return result;
}

std::vector<std::vector<std::byte>> plain_addresses(
    const Transport& transport, const std::vector<std::vector<std::byte>>& named) {
  std::vector<std::vector<std::byte>> result;
  for (std::size_t rank = 0; rank < named.size(); ++rank) {
    const auto end = std::find(named[rank].begin(), named[rank].end(), std::byte{0});
    std::string name;
    std::transform(named[rank].begin(), end, std::back_inserter(name),
                   [](std::byte byte) { return static_cast<char>(byte); });
    if (end == named[rank].end() || name != transport.name()) {
      throw RuntimeFailure("rank " + std::to_string(rank) + " uses the transport '" + name +
                           "', this worker '" + std::string(transport.name()) + "'");
    }
    result.emplace_back(end + 1, named[rank].end());
  }
  return result;
}

}  // namespace

std::string default_transport() {
  const char* variable = std::getenv("RACKRAIL_TRANSPORT");
  return variable != nullptr && *variable != '\0' ? variable : "ucx";
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown host";
}

Session::Session(SessionOptions options, std::unique_ptr<Transport> transport)
    : options_(std::move(options)),
      transport_(std::move(transport)),
      client_(
          options_.coordinator, options_.token,
          [this](const std::string& reason) { abort(reason); }, options_.tls) {
  if (!options_.is_network_private) {
    require_private(options_.coordinator, options_.tls);
  }
}

Session::~Session() { close(kCloseDeadline); }

void Session::join() {
  if (transport_ == nullptr) {
    transport_ = open_transport(options_.transport, options_.takes_other_transport, notes_);
  }
  welcome_ = client_.join({.rank = options_.rank,
                           .world_size = options_.world_size,
                           .address = named_address(*transport_),
                           .plan_digest = options_.plan_digest,
                           .host = host_name(),
                           .pid = getpid(),
                           .version = std::string(build_config::kVersion),
                           .returning = options_.returning},
                          options_.rendezvous_deadline);
  has_joined_ = true;
  executor_options_.epoch = welcome_.epoch;
  const std::vector<std::vector<std::byte>> addresses = std::exchange(welcome_.addresses, {});
  transport_->set_key(welcome_.transport_key);
  transport_->connect(welcome_.rank, plain_addresses(*transport_, addresses));
}

void Session::start(plan::Plan plan, const ExecutorOptions& options, MakeExecutor maker) {
  require_ranks(plan);
  executor_options_ = options;
  executor_options_.on_missed = [this](const MissedPeer& peer) { say_missed(peer); };
  make_executor_ = std::move(maker);
  executor_options_.epoch = welcome_.epoch;
  make_executor(std::move(plan));
}

void Session::start_servers(plan::Plan plan, ParameterExchangeOptions options) {
  require_ranks(plan);
  plan_ = std::make_unique<plan::Plan>(std::move(plan));
  options.epoch = welcome_.epoch;
  options.on_missed = [this](const MissedPeer& peer) { say_missed(peer); };
  auto servers = std::make_unique<ParameterExchange>(*plan_, welcome_.rank, *transport_, options);
  const std::lock_guard lock(executor_mutex_);
  servers_ = std::move(servers);
  if (const std::optional<std::string> reason = client_.abort_reason()) {
    servers_->abort(*reason);
  }
}

// At once: those who have nothing to send say it at once, too, and are to be weighed together.
void Session::say_missed(const MissedPeer& peer) {
  client_.say_transport_error(peer.rank, peer.why, peer.silence);
}

ExecutorStatistics Session::statistics() const {
  return servers_ != nullptr ? servers_->statistics() : executor_->statistics();
}

void Session::adopt(plan::Plan plan) {
  executor_->wait_all();
  const std::vector<std::string> digests = client_.exchange(plan::digest(plan));
  for (std::size_t rank = 1; rank < digests.size(); ++rank) {
    if (digests[rank] != digests[0]) {
      throw PlanError("rank " + std::to_string(rank) + " adopts the plan " +
                      digests[rank].substr(0, 12) + ", rank 0 the plan " +
                      digests[0].substr(0, 12));
    }
  }
  require_ranks(plan);
  Residuals residuals = executor_->residuals();
  end_executor();
  client_.exchange("");
  ++executor_options_.epoch;
  make_executor(std::move(plan));
  executor_->set_residuals(std::move(residuals));
}

void Session::require_ranks(const plan::Plan& plan) const {
  if (plan.rank_count() != welcome_.world_size) {
    throw PlanError(
        ErrorContext{.file = "the job's plan",
                     .where = "ranks",
                     .found = std::to_string(plan.rank_count()),
                     .expected = std::to_string(welcome_.world_size) + ", the number of workers"});
  }
}

void Session::make_executor(plan::Plan plan) {
  plan_ = std::make_unique<plan::Plan>(std::move(plan));
  std::unique_ptr<PlanExecutor> executor;
  if (make_executor_) {
    try {
      executor = make_executor_(
          {.plan = *plan_,
           .self = welcome_.rank,
           .transport = *transport_,
           .epoch = executor_options_.epoch,
           .exchange = [this](const std::string& own) { return client_.exchange(own); },
           .is_over = [this] { return client_.abort_reason().has_value(); }});
    } catch (const RuntimeFailure&) {
      if (const std::optional<std::string> reason = client_.abort_reason()) {
        throw PeerLostError(*reason);  // without whom ranks cannot meet
      }
      throw;
    }
  } else {
    auto on_host =
        std::make_unique<Executor>(*plan_, welcome_.rank, *transport_, executor_options_);
    for (const std::string& note : on_host->notes()) {
      if (std::find(notes_.begin(), notes_.end(), note) == notes_.end()) {
        notes_.push_back(note);
      }
    }
    executor = std::move(on_host);
  }
  const std::lock_guard lock(executor_mutex_);
  executor_ = std::move(executor);
  if (const std::optional<std::string> reason = client_.abort_reason()) {
    executor_->abort(*reason);  // it came before there was an executor to be told
  }
}

bool Session::finish(const std::string& result, std::optional<Duration> at_most,
                     std::optional<std::uint32_t> steps) {
  client_.report_result(result, steps);
  const bool finished = client_.wait_until_finished(at_most);
  close(kCloseDeadline);
  client_.leave(true);
  return finished;
}

void Session::fail(const AbortReason& reason) {
  client_.leave(false, reason);
  close(kCloseDeadline);
}

void Session::abandon(const AbortReason& reason) {
  {
    // Where the job has ended before, that is the reason, and giving up a consequence.
    const bool has_ended = client_.abort_reason().has_value();
    const std::lock_guard lock(executor_mutex_);
    if (!abandoned_ && !has_ended) {
      abandoned_ = reason.line;
    }
  }
  client_.leave(false, reason);
  abort(reason.line);
}

std::string Session::reason_of_loss(const PeerLostError& seen_here) {
  {
    // The others end as soon as they hear that this rank gave up, which may be before its own
    // executor was told.
    const std::lock_guard lock(executor_mutex_);
    if (abandoned_) {
      return *abandoned_;
    }
  }
  // The transport notices a lost peer as soon as the coordinator does, which knows who it was.
  std::optional<std::string> reason = client_.abort_reason();
  if (!reason) {
    if (const auto* missed = dynamic_cast<const MissedPeerError*>(&seen_here)) {
      const MissedPeer& peer = missed->peer();
      for (const MissedPeer& other : missed->others()) {
        say_missed(other);
      }
      reason = client_.report_transport_error(peer.rank, peer.why, peer.silence);
    } else {
      reason = client_.report_transport_error(std::nullopt, seen_here.what());
    }
  }
  return reason.value_or(seen_here.what());
}

void Session::abort(const std::string& reason) {
  const std::lock_guard lock(executor_mutex_);
  if (executor_ != nullptr) {
    executor_->abort(reason);
  }
  if (servers_ != nullptr) {
    servers_->abort(reason);
  }
}

void Session::end_executor() noexcept {
  std::unique_ptr<PlanExecutor> ending;
  std::unique_ptr<ParameterExchange> ending_servers;
  {
    const std::lock_guard lock(executor_mutex_);
    ending.swap(executor_);
    ending_servers.swap(servers_);
  }
  ending.reset();  // joins its thread, so without the lock
  ending_servers.reset();
}

void Session::disconnect() noexcept { close(kDisconnectDeadline); }

void Session::close(Duration deadline) noexcept {
  end_executor();
  if (transport_ != nullptr) {
    transport_->close(deadline);
  }
}

}  // namespace rackrail::runtime
