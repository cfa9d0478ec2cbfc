#include "runtime/coordinator/regroup.hpp"

#include <algorithm>
#include <utility>

namespace rackrail::runtime {

Regroup::Regroup(std::vector<Rank> left, TimePoint deadline)
    : left_(std::move(left)), deadline_(deadline) {}

namespace {

bool has_parameters(const Regroup::Member& member) {
  return member.request.returning && member.request.returning->has_parameters;
}

}  // namespace

bool Regroup::expects(Rank seat) const {
  return std::ranges::binary_search(left_, seat) && !is_vacant(seat);
}

void Regroup::come(Rank seat, Member member) { members_.insert_or_assign(seat, std::move(member)); }

void Regroup::vacate(Rank seat, TimePoint deadline) {
  members_.erase(seat);
  vacant_.insert_or_assign(seat, deadline);
}

void Regroup::take(Rank seat, Member newcomer) {
  if (!std::ranges::binary_search(left_, seat)) {
    left_.insert(std::ranges::upper_bound(left_, seat), seat);
  }
  vacant_.erase(seat);
  members_.insert_or_assign(seat, std::move(newcomer));
}

bool Regroup::has_holders() const {
  return std::ranges::any_of(left_, [this](Rank seat) {
    const auto member = members_.find(seat);
    return member != members_.end() ? has_parameters(member->second) : !is_vacant(seat);
  });
}

std::optional<Rank> Regroup::seat_of(const MemberStream& stream) const {
  for (const auto& [seat, member] : members_) {
    if (member.stream == &stream) {
      return seat;
    }
  }
  return std::nullopt;
}

void Regroup::lose(Rank seat) {
  std::erase(left_, seat);
  members_.erase(seat);
  vacant_.erase(seat);
  plan_.reset();
  ++question_;
}

std::vector<Rank> Regroup::overdue(TimePoint now) const {
  std::vector<Rank> result;
  std::ranges::copy_if(left_, std::back_inserter(result), [this, now](Rank seat) {
    const auto vacancy = vacant_.find(seat);
    return !has_come(seat) && now >= (vacancy != vacant_.end() ? vacancy->second : deadline_);
  });
  return result;
}

std::vector<Rank> Regroup::newcomers() const {
  std::vector<Rank> result;
  for (const auto& [seat, member] : members_) {
    if (!has_parameters(member)) {
      result.push_back(seat);
    }
  }
  return result;
}

std::optional<std::uint32_t> Regroup::common_step() const {
  std::optional<std::uint32_t> step;
  for (const auto& [seat, member] : members_) {
    if (has_parameters(member)) {
      const std::uint32_t own = member.request.returning->step;
      step = std::min(step.value_or(own), own);
    }
  }
  const bool all_can = std::ranges::all_of(members_, [step](const auto& entry) {
    const std::optional<Returning>& has = entry.second.request.returning;
    return !has_parameters(entry.second) || has->step == step || has->oldest_step == step;
  });
  return all_can ? step : std::nullopt;
}

}  // namespace rackrail::runtime
