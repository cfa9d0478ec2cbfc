#include "runtime/coordinator/membership.hpp"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "base/parse_units.hpp"
#include "runtime/coordinator/clock.hpp"

namespace rackrail::runtime {
namespace {

// Ticks come at least this often, so that a pause of the coordinator itself shows.
constexpr std::chrono::milliseconds kTickPeriod{200};

// After so many periods without a tick what members said has yet to be read.
constexpr int kLateTicks = 2;

// Exchanges that a member may have come to before the others have ended the one that is next.
constexpr std::uint32_t kMostAhead = 1;
// Checkpoints that may be incomplete at a time, where ranks are not in step: those of later steps.
constexpr std::size_t kMostCheckpoints = 256;
// Part of the timeout within which members went silent together.
constexpr int kTogether = 6;

std::string rank_text(Rank rank) { return "rank " + std::to_string(rank.value()); }

/// The others of those that were lost.
std::string and_with_it(const std::vector<Rank>& lost) {
  std::string text;
  for (std::size_t i = 1; i < lost.size(); ++i) {
    text += (i == 1 ? "; and with it " : ", ") + rank_text(lost[i]);
  }
  return text;
}

}  // namespace

Membership::Membership(MembershipOptions options, TimePoint now)
    : options_(std::move(options)),
      start_(now),
      last_tick_(now),
      end_(now),
      results_(options_.world_size) {}

std::optional<Refusal> Membership::refusal_of(const JoinRequest& request) const {
  const std::string who = (request.rank ? rank_text(*request.rank) : std::string("a worker")) +
                          " (pid " + std::to_string(request.pid) + " on " + request.host + ")";
  const std::string size = std::to_string(options_.world_size);
  if (request.version != options_.version) {
    return Refusal{.reason = who + " runs rackrail " + request.version + ", expected " +
                             options_.version};
  }
  if (request.world_size != 0 && request.world_size != options_.world_size) {
    return Refusal{.reason = who + " expects " + std::to_string(request.world_size) +
                             " workers, the job has " + size};
  }
  if (!request.plan_digest.empty() && request.plan_digest != options_.plan_digest) {
    return Refusal{.reason = who + " has the plan " + request.plan_digest.substr(0, 12) +
                             ", the job runs the plan " + options_.plan_digest.substr(0, 12)};
  }
  if (request.rank && request.rank->index() >= options_.world_size) {
    return Refusal{.reason = who + " is out of range: the job has ranks 0 to " +
                             std::to_string(options_.world_size - 1)};
  }
  if (state_ != MembershipState::kGathering) {
    return Refusal{.reason = who + " came too late: " +
                             (state_ == MembershipState::kAborted
                                  ? "the job was aborted: " + abort_reason_.line
                                  : "all " + size + " workers of the job are there"),
                   .too_late = true};
  }
  for (const Member& member : members_) {
    if (request.rank && member.rank == request.rank) {
      return Refusal{.reason = who + " came twice: pid " + std::to_string(member.request.pid) +
                               " on " + member.request.host + " has the same rank"};
    }
  }
  return std::nullopt;
}

std::variant<MemberId, Refusal> Membership::join(JoinRequest request, TimePoint now) {
  if (std::optional<Refusal> refusal = refusal_of(request)) {
    return *std::move(refusal);
  }
  Member member;
  member.id = MemberId(members_.size());
  member.rank = request.rank;
  member.request = std::move(request);
  member.last_heard = now;
  members_.push_back(std::move(member));
  const MemberId id = members_.back().id;
  if (members_.size() == options_.world_size) {
    start(now);
  }
  return id;
}

std::map<Rank, std::size_t> Membership::degrees(const Pairs& pairs) {
  std::map<Rank, std::size_t> degree;
  for (const auto& [low, high] : pairs) {
    ++degree[low];
    ++degree[high];
  }
  return degree;
}

void Membership::start(TimePoint now) {
  std::vector<bool> taken(options_.world_size, false);
  for (const Member& member : members_) {
    if (member.rank) {
      taken[member.rank->index()] = true;
    }
  }
  by_rank_.assign(options_.world_size, 0);
  std::size_t next_free = 0;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    Member& member = members_[i];
    if (!member.rank) {
      while (taken[next_free]) {
        ++next_free;
      }
      taken[next_free] = true;
      member.rank = Rank(next_free);
    }
    by_rank_[member.rank->index()] = i;
    member.last_heard = now;
  }
  state_ = MembershipState::kRunning;
  epoch_ = options_.epoch;
  events_.emplace_back(AllJoined{});
}

void Membership::abort(AbortReason reason, TimePoint now, std::vector<Rank> lost,
                       TimePoint last_heard) {
  if (state_ == MembershipState::kAborted || state_ == MembershipState::kFinished) {
    return;
  }
  state_ = MembershipState::kAborted;
  end_ = now;
  abort_reason_ = std::move(reason);
  Aborted event{.reason = abort_reason_, .lost = std::move(lost), .silence = {}};
  if (!event.lost.empty()) {
    event.silence = Duration(std::chrono::nanoseconds(now - last_heard).count() * 1000);
  }
  events_.emplace_back(std::move(event));
}

void Membership::stop(const AbortReason& reason, TimePoint now) { abort(reason, now); }

void Membership::stream_closed(MemberId id, TimePoint now) {
  if (id.index() >= members_.size() || !members_[id.index()].present) {
    return;
  }
  Member& member = members_[id.index()];
  member.present = false;
  abort({name(member) + " was lost: connection closed", false}, now,
        member.rank ? std::vector{*member.rank} : std::vector<Rank>{}, member.last_heard);
}

void Membership::heartbeat(Rank rank, const WorkerProgress& progress, TimePoint now) {
  if (Member* member = find(rank)) {
    member->last_heard = now;
    member->progress = progress;
    compare_end(*member, now);
  }
}

void Membership::abort_for_want_of(const Member& ended, const Member& waiting, TimePoint now) {
  abort({name(ended) + " ended at least a step before " + name(waiting) +
             ", which waits for it: did they have unequal numbers of batches?",
         false},
        now);
}

void Membership::compare_end(const Member& member, TimePoint now) {
  if (state_ == MembershipState::kRunning && first_end_) {
    const Member& first = members_[*first_end_];
    if (member.progress.step > *first.steps) {
      abort_for_want_of(first, member, now);
    }
  }
}

bool Membership::need_nobody_more() const {
  return state_ == MembershipState::kRunning && first_end_ &&
         std::ranges::all_of(members_, [](const Member& member) {
           return member.present || member.steps.has_value();
         });
}

void Membership::report_checkpoint(Rank rank, std::uint32_t step,
                                   std::vector<CheckpointFile> files) {
  if (find(rank) == nullptr || state_ != MembershipState::kRunning) {
    return;
  }
  if (checkpoints_.size() >= kMostCheckpoints && !checkpoints_.contains(step)) {
    checkpoints_.erase(checkpoints_.begin());
  }
  auto& parts = checkpoints_[step];
  parts.resize(options_.world_size);
  parts[rank.index()] = std::move(files);
  if (!std::all_of(parts.begin(), parts.end(), [](const auto& part) { return part.has_value(); })) {
    return;
  }
  CheckpointComplete complete{.step = step, .files = {}};
  for (auto& part : parts) {
    complete.files.push_back(*std::move(part));
  }
  // An older one that is still incomplete never will be: ranks save in the order of steps.
  checkpoints_.erase(checkpoints_.begin(), checkpoints_.upper_bound(step));
  events_.emplace_back(std::move(complete));
}

void Membership::contribute(Rank rank, std::uint32_t round, std::string part, TimePoint now) {
  if (find(rank) == nullptr || state_ != MembershipState::kRunning || round < round_ ||
      round - round_ > kMostAhead) {
    return;
  }
  if (first_end_) {
    abort_for_want_of(members_[*first_end_], *find(rank), now);
    return;
  }
  auto& parts = exchanges_[round];
  parts.resize(options_.world_size);
  parts[rank.index()] = std::move(part);
  if (!std::all_of(parts.begin(), parts.end(), [](const auto& one) { return one.has_value(); })) {
    return;
  }
  ExchangeComplete complete{.round = round, .parts = {}};
  for (auto& one : parts) {
    complete.parts.push_back(*std::move(one));
  }
  exchanges_.erase(exchanges_.begin(), exchanges_.upper_bound(round));
  round_ = round + 1;
  events_.emplace_back(std::move(complete));
}

void Membership::report_result(Rank rank, std::string payload, std::optional<std::uint32_t> steps,
                               TimePoint now) {
  Member* member = find(rank);
  if (member == nullptr || state_ != MembershipState::kRunning) {
    return;
  }
  member->has_result = true;
  member->steps = steps;
  if (steps) {
    if (!first_end_ || *steps < *members_[*first_end_].steps) {
      first_end_ = static_cast<std::size_t>(member - members_.data());
    }
    for (const Member& other : members_) {
      compare_end(other, now);
    }
    for (const auto& [round, parts] : exchanges_) {  // to which all others have to come
      const auto waiting =
          std::ranges::find_if(parts, [](const auto& part) { return part.has_value(); });
      if (waiting != parts.end() && state_ == MembershipState::kRunning) {
        abort_for_want_of(
            *member, members_[by_rank_[static_cast<std::size_t>(waiting - parts.begin())]], now);
      }
    }
  }
  if (state_ != MembershipState::kRunning) {
    return;
  }
  results_[rank.index()] = std::move(payload);
  if (std::all_of(members_.begin(), members_.end(),
                  [](const Member& each) { return each.has_result; })) {
    state_ = MembershipState::kFinished;
    end_ = now;
    events_.emplace_back(AllFinished{});
  }
}

/// Once per reporter and suspect, and so often per reporter as there are others: what one member
/// says, however often, keeps nobody else's word out.
bool Membership::may_be_suspected(Rank reporter, std::optional<Rank> suspect) const {
  const bool is_said = std::ranges::any_of(suspicions_, [&](const Suspicion& each) {
    return each.reporter == reporter && each.suspect == suspect;
  });
  const auto said = std::ranges::count(suspicions_, reporter, &Suspicion::reporter);
  return !is_said && said < std::max<std::ptrdiff_t>(1, std::ssize(members_) - 1);
}

void Membership::report_transport_error(Rank rank, std::optional<Rank> peer,
                                        const std::string& reason, std::optional<Duration> silence,
                                        TimePoint now) {
  if (find(rank) == nullptr || state_ != MembershipState::kRunning ||
      !may_be_suspected(rank, peer)) {
    return;
  }
  suspicions_.push_back({.reporter = rank,
                         .suspect = peer,
                         .reason = reason,
                         .last_heard = now - to_chrono(silence.value_or(Duration())),
                         .said_at = now,
                         .is_of_silence = silence.has_value()});
  const TimePoint deadline =
      now + to_chrono(silence ? options_.silence_grace : options_.suspicion_grace);
  judgement_ = std::min(judgement_.value_or(deadline), deadline);
}

Membership::Pairs Membership::broken_pairs() const {
  Pairs pairs;
  for (const Suspicion& each : suspicions_) {
    if (each.suspect && *each.suspect != each.reporter && find(*each.suspect) != nullptr) {
      pairs.emplace(std::minmax(each.reporter, *each.suspect));
    }
  }
  return pairs;
}

/// Whether others, who may miss a peer a little later, can still say which side of a pair it is.
bool Membership::may_become_clear(TimePoint now) const {
  constexpr int kGraces = 3;
  const Suspicion& first = suspicions_.front();
  const std::map<Rank, std::size_t> degree = degrees(broken_pairs());
  const auto by_degree = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto most = std::ranges::max_element(degree, by_degree);
  return first.is_of_silence && members_.size() > 2 && most != degree.end() &&
         std::ranges::count_if(
             degree, [&](const auto& entry) { return entry.second == most->second; }) > 1 &&
         now < first.said_at + kGraces * to_chrono(options_.silence_grace);
}

/// Whether it came after the job's beginning and has no parameters yet. Who takes part in an
/// exchange has them: they are the first that a newcomer is given.
bool Membership::is_newcomer(Rank rank) const {
  const Member* member = find(rank);
  return options_.epoch > 1 && round_ == 0 && member != nullptr &&
         !(member->request.returning && member->request.returning->has_parameters);
}

/// Those without whom all others can reach each other, as far as was said.
std::vector<Rank> Membership::cut_off() const {
  Pairs edges = broken_pairs();
  std::vector<Rank> result;
  while (!edges.empty()) {
    const std::map<Rank, std::size_t> degree = degrees(edges);
    Rank worst = degree.begin()->first;
    for (const auto& [rank, count] : degree) {
      if (std::tuple(count, is_newcomer(rank), rank) >
          std::tuple(degree.at(worst), is_newcomer(worst), worst)) {
        worst = rank;
      }
    }
    result.push_back(worst);
    std::erase_if(
        edges, [worst](const auto& edge) { return edge.first == worst || edge.second == worst; });
  }
  return result;
}

void Membership::judge(TimePoint now) {
  if (may_become_clear(now)) {
    judgement_ = now + to_chrono(options_.silence_grace);
    return;
  }
  std::vector<Rank> lost = cut_off();
  if (lost.empty()) {
    const Suspicion& first = suspicions_.front();
    abort({name(members_[by_rank_[first.reporter.index()]]) + " lost its peers: " + first.reason,
           false},
          now);
    return;
  }
  // That it was not heard or, at worst, that it did not hear.
  auto evidence = std::ranges::find_if(
      suspicions_, [&](const Suspicion& each) { return each.suspect == lost[0]; });
  const bool is_accused = evidence != suspicions_.end();
  if (!is_accused) {
    evidence = std::ranges::find_if(suspicions_, [&](const Suspicion& each) {
      return each.suspect && each.reporter == lost[0];
    });
  }
  const std::string line =
      name(*find(lost[0])) + " was lost: " +
      (is_accused ? rank_text(evidence->reporter) + " cannot reach it: "
                  : "it cannot reach " + rank_text(*evidence->suspect) + ": ") +
      evidence->reason + and_with_it(lost);
  const TimePoint last_heard = evidence->last_heard;
  abort({line, false}, now, std::move(lost), last_heard);
}

/// The members whose heartbeats are overdue; and those that are about to be, because what keeps one
/// from sending them may keep others, and each of them would cost another epoch.
void Membership::lose_silent(TimePoint now) {
  const auto timeout = to_chrono(options_.heartbeat_timeout);
  const auto first = std::ranges::find_if(members_, [&](const Member& member) {
    return member.present && now >= member.last_heard + timeout;
  });
  if (first == members_.end()) {
    return;
  }
  std::vector<Rank> lost{*first->rank};
  for (const Member& member : members_) {
    if (member.rank != first->rank && member.present &&
        now >= member.last_heard + timeout - timeout / kTogether) {
      lost.push_back(*member.rank);
    }
  }
  const std::string line = name(*first) + " was lost: no heartbeat for " +
                           to_string(options_.heartbeat_timeout) + and_with_it(lost);
  const TimePoint last_heard = first->last_heard;
  abort({line, false}, now, std::move(lost), last_heard);
}

void Membership::leave(Rank rank, bool ok, const AbortReason& reason, TimePoint now) {
  Member* member = find(rank);
  if (member == nullptr) {
    return;
  }
  member->present = false;
  if (!ok) {
    abort({name(*member) + " failed: " + reason.line, reason.bad_input}, now);
  } else if (state_ == MembershipState::kRunning && !member->steps) {
    abort({name(*member) + " left before the job's end", false}, now);
  }
}

void Membership::lose(Rank rank, const std::string& reason, TimePoint now) {
  Member* member = find(rank);
  if (member == nullptr) {
    return;
  }
  member->present = false;
  abort({name(*member) + " was lost: " + reason, false}, now, {rank}, member->last_heard);
}

void Membership::tick(TimePoint now) {
  const auto late = now - last_tick_ - kLateTicks * kTickPeriod;
  last_tick_ = now;
  if (late > std::chrono::nanoseconds(0)) {
    start_ += late;
    for (Member& member : members_) {
      member.last_heard += late;
    }
  }
  if (state_ == MembershipState::kGathering &&
      now >= start_ + to_chrono(options_.rendezvous_deadline)) {
    abort({std::to_string(members_.size()) + " of " + std::to_string(options_.world_size) +
               " workers came within " + to_string(options_.rendezvous_deadline) + missing_ranks(),
           false},
          now);
    return;
  }
  if (state_ != MembershipState::kRunning) {
    return;
  }
  lose_silent(now);
  if (state_ == MembershipState::kRunning && judgement_ && now >= *judgement_) {
    judge(now);
  }
}

TimePoint Membership::next_deadline(TimePoint now) const {
  TimePoint next = now + kTickPeriod;
  if (state_ == MembershipState::kGathering) {
    next = std::min(next, start_ + to_chrono(options_.rendezvous_deadline));
  } else if (state_ == MembershipState::kRunning) {
    for (const Member& member : members_) {
      next = std::min(next, member.last_heard + to_chrono(options_.heartbeat_timeout));
    }
    if (judgement_) {
      next = std::min(next, *judgement_);
    }
  } else if (const TimePoint given_up = end_ + to_chrono(options_.leave_grace); given_up > now) {
    next = std::min(next, given_up);
  }
  return next;
}

std::vector<MembershipEvent> Membership::take_events() { return std::exchange(events_, {}); }

bool Membership::is_over(TimePoint now) const {
  if (state_ != MembershipState::kFinished && state_ != MembershipState::kAborted) {
    return false;
  }
  // Before the start nobody has a rank to leave with: those who wait are told by their stream's
  // end.
  return epoch_ == 0 || now >= end_ + to_chrono(options_.leave_grace) ||
         std::none_of(members_.begin(), members_.end(),
                      [](const Member& member) { return member.present; });
}

JobProgress Membership::progress() const {
  JobProgress progress;
  progress.joined = members_.size();
  progress.world_size = options_.world_size;
  std::size_t with_loss = 0;
  for (const Member& member : members_) {
    progress.step = &member == &members_.front() ? member.progress.step
                                                 : std::min(progress.step, member.progress.step);
    progress.step_time = std::max(progress.step_time, member.progress.step_time);
    if (member.progress.step > 0) {
      progress.loss += member.progress.loss;
      ++with_loss;
    }
  }
  if (with_loss > 0) {
    progress.loss /= static_cast<double>(with_loss);
  }
  return progress;
}

std::vector<MemberStatus> Membership::members(TimePoint now) const {
  std::vector<MemberStatus> result;
  result.reserve(members_.size());
  for (const Member& member : members_) {
    const auto silence = std::max(now - member.last_heard, TimePoint::duration::zero());
    result.push_back({.rank = member.rank,
                      .seat = {},
                      .host = member.request.host,
                      .pid = member.request.pid,
                      .is_present = member.present,
                      .silence = Duration(std::chrono::nanoseconds(silence).count() * 1000),
                      .progress = member.progress});
  }
  if (epoch_ != 0) {
    std::ranges::sort(result, {}, &MemberStatus::rank);
  }
  return result;
}

std::vector<std::vector<std::byte>> Membership::addresses() const {
  std::vector<std::vector<std::byte>> result;
  result.reserve(by_rank_.size());
  for (const std::size_t index : by_rank_) {
    result.push_back(members_[index].request.address);
  }
  return result;
}

std::optional<Rank> Membership::rank_of(MemberId member) const {
  return member.index() < members_.size() ? members_[member.index()].rank : std::nullopt;
}

std::optional<MemberId> Membership::member_of(Rank rank) const {
  if (rank.index() >= by_rank_.size()) {
    return std::nullopt;
  }
  return members_[by_rank_[rank.index()]].id;
}

Membership::Member* Membership::find(Rank rank) {
  return const_cast<Member*>(std::as_const(*this).find(rank));
}

const Membership::Member* Membership::find(Rank rank) const {
  if (rank.index() >= by_rank_.size()) {
    return nullptr;
  }
  const Member& member = members_[by_rank_[rank.index()]];
  return member.present ? &member : nullptr;
}

std::string Membership::name(const Member& member) const {
  return (member.rank ? rank_text(*member.rank) : std::string("a worker")) + " (pid " +
         std::to_string(member.request.pid) + " on " + member.request.host + ")";
}

std::string Membership::missing_ranks() const {
  // Only said when every member named its rank: otherwise nobody is missing in particular.
  std::vector<bool> there(options_.world_size, false);
  for (const Member& member : members_) {
    if (!member.rank) {
      return "";
    }
    there[member.rank->index()] = true;
  }
  constexpr std::size_t kMostListed = 8;
  std::string list;
  std::size_t missing = 0;
  for (std::size_t rank = 0; rank < there.size(); ++rank) {
    if (!there[rank] && ++missing <= kMostListed) {
      list += (list.empty() ? "" : ", ") + std::to_string(rank);
    }
  }
  return "; missing: rank " + list + (missing > kMostListed ? ", …" : "");
}

}  // namespace rackrail::runtime
