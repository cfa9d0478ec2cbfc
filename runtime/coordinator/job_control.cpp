#include "runtime/coordinator/job_control.hpp"

#include <chrono>
#include <exception>
#include <utility>
#include <variant>

#include "base/error.hpp"
#include "runtime/coordinator/grpc_setup.hpp"

namespace rackrail::runtime {
namespace {

TimePoint now() { return std::chrono::steady_clock::now(); }

}  // namespace

JobControl::JobControl(const CoordinatorOptions& options)
    : options_(options),
      membership_(options.membership, now()),
      callbacks_([] { return TimePoint::max(); }),
      service_([this] { return turn(); }) {
  if (options.recovered) {
    post([this] { recover(*options_.recovered); });
  }
}

void JobControl::join(MemberStream& stream, JoinRequest request) {
  if (request.returning) {
    come_back(stream, std::move(request));
    return;
  }
  if (takes_newcomers()) {
    admit(stream, std::move(request));
    return;
  }
  const std::int64_t pid = request.pid;
  const auto joined = membership_.join(std::move(request), now());
  if (const auto* refusal = std::get_if<Refusal>(&joined)) {
    stream.end(refusal->too_late ? MemberStream::End::kAborted : MemberStream::End::kRefused,
               refusal->reason);
    return;
  }
  came_.insert(pid);
  streams_.emplace(&stream, std::get<MemberId>(joined));
}

void JobControl::broken(MemberStream& stream) {
  if (const auto it = streams_.find(&stream); it != streams_.end()) {
    membership_.stream_closed(it->second, now());
  }
  lose_stream(stream);
  stream.end(MemberStream::End::kBroken, "connection closed");
}

void JobControl::forget(MemberStream& stream) {
  if (const auto it = streams_.find(&stream); it != streams_.end()) {
    membership_.stream_closed(it->second, now());
    streams_.erase(it);
  }
  lose_stream(stream);
}

void JobControl::leave(Rank rank, bool ok, const AbortReason& reason) {
  if (!ok && is_arriving(rank)) {
    membership_.lose(rank, reason.line, now());  // the others have all that the job is made of
  } else {
    membership_.leave(rank, ok, reason, now());
  }
  const std::optional<MemberId> member = membership_.member_of(rank);
  for (const auto& [stream, id] : streams_) {
    if (id == member) {
      stream->end(MemberStream::End::kLeft, "");
    }
  }
}

void JobControl::end_all(const std::string& reason) {
  if (membership_.need_nobody_more()) {
    tell(AllFinished{});
    return;
  }
  give_up(reason);
  refuse_newcomers(reason);
  membership_.stop({reason, false}, now());
  for (const auto& [stream, member] : streams_) {
    stream->end(MemberStream::End::kAborted, membership_.abort_reason().line);
  }
}

void JobControl::stop(const std::string& reason) {
  post([this, reason] {
    give_up(reason);
    membership_.stop({reason, false}, now());
  });
}

std::optional<CoordinatorOutcome> JobControl::wait_for(Duration at_most) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::nanoseconds(at_most.picoseconds() / 1000),
                    [&] { return outcome_.has_value(); });
  return outcome_;
}

void JobControl::finish() {
  service_.finish();  // may still post to the callbacks
  callbacks_.finish();
}

TimePoint JobControl::turn() {
  const TimePoint time = now();
  membership_.tick(time);
  lose_overdue(time);
  for (const MembershipEvent& event : membership_.take_events()) {
    std::visit([this](const auto& each) { tell(each); }, event);
  }
  publish_progress(time);
  if (!over_ && membership_.is_over(time)) {
    over_ = true;
    refuse_newcomers("the job is over");
    callbacks_.post([this, outcome = outcome_now()] { publish(outcome); });
  }
  return membership_.next_deadline(time);
}

void JobControl::tell(const AllJoined& /*event*/) {
  started_ = true;
  if (epoch_.seats.empty()) {
    for (std::size_t rank = 0; rank < membership_.options().world_size; ++rank) {
      epoch_.seats.emplace_back(rank);
      epoch_.since.push_back(epoch_.epoch);
    }
    epoch_.plan = {options_.plan, membership_.options().plan_digest};
  }
  if (options_.keep) {
    try {
      options_.keep(epoch_);
    } catch (const std::exception& error) {
      membership_.stop({one_line(error.what()), false}, now());
      return;
    }
  }
  const PeerAddresses peers{.by_rank = membership_.addresses(), .key = random_key()};
  for (const auto& [stream, member] : streams_) {
    if (const std::optional<Rank> rank = membership_.rank_of(member)) {
      stream->welcome(*rank, epoch_, peers);
    }
  }
}

void JobControl::tell(const Aborted& event) {
  if (goes_on_after(event)) {
    regroup(event);
    return;
  }
  for (const auto& [stream, member] : streams_) {
    if (membership_.epoch() == 0) {
      stream->end(MemberStream::End::kAborted, event.reason.line);
    } else {
      stream->abort(event.reason.line, /*come_back=*/false);
    }
  }
}

void JobControl::tell(const CheckpointComplete& event) {
  if (options_.on_checkpoint) {
    callbacks_.post([this, event] { complete_checkpoint(event); });
  }
}

void JobControl::tell(const ExchangeComplete& event) {
  announce(now());
  for (const auto& [stream, member] : streams_) {
    stream->gathered(event.round, event.parts);
  }
}

void JobControl::tell(const AllFinished& /*event*/) {
  for (const auto& [stream, member] : streams_) {
    stream->finish();
  }
}

void JobControl::publish_progress(TimePoint time) {
  constexpr std::chrono::milliseconds kPeriod{100};
  if (!options_.on_progress || progress_waits_ || time < last_progress_ + kPeriod) {
    return;
  }
  last_progress_ = time;
  progress_waits_ = true;
  callbacks_.post([this, progress = membership_.progress()] {
    options_.on_progress(progress);
    progress_waits_ = false;
  });
}

CoordinatorOutcome JobControl::outcome_now() const {
  CoordinatorOutcome outcome;
  outcome.ok = membership_.state() == MembershipState::kFinished;
  outcome.reason = membership_.abort_reason();
  outcome.results = membership_.results();
  outcome.progress = membership_.progress();
  outcome.epochs = membership_.epoch() != 0 ? membership_.epoch() : membership_.options().epoch - 1;
  return outcome;
}

void JobControl::complete_checkpoint(const CheckpointComplete& checkpoint) {
  try {
    options_.on_checkpoint(checkpoint.step, checkpoint.files);
    return;
  } catch (const Error& error) {
    callback_failure_ = AbortReason{one_line(error.what()), error.is_bad_input()};
  } catch (const std::exception& error) {
    callback_failure_ = AbortReason{one_line(error.what()), false};
  }
  post([this, reason = *callback_failure_] { membership_.stop(reason, now()); });
}

void JobControl::publish(CoordinatorOutcome outcome) {
  if (options_.on_progress) {
    options_.on_progress(outcome.progress);
  }
  if (outcome.ok && callback_failure_) {  // of the last checkpoint, after all had finished
    outcome.ok = false;
    outcome.reason = *callback_failure_;
  }
  const std::lock_guard lock(mutex_);
  outcome_ = std::move(outcome);
  changed_.notify_all();
}

}  // namespace rackrail::runtime
