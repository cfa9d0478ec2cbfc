#include "runtime/coordinator/regroup.hpp"

#include <algorithm>
#include <utility>

namespace rackrail::runtime {

Regroup::Regroup(std::vector<Rank> left, TimePoint deadline)
    : left_(std::move(left)), deadline_(deadline) {}

bool Regroup::expects(Rank seat) const { return std::ranges::binary_search(left_, seat); }

void Regroup::come(Rank seat, Member member) { members_.insert_or_assign(seat, std::move(member)); }

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
  plan_.reset();
  ++question_;
}

std::vector<Rank> Regroup::overdue(TimePoint now) const {
  std::vector<Rank> result;
  if (now >= deadline_) {
    std::ranges::copy_if(left_, std::back_inserter(result),
                         [this](Rank seat) { return !has_come(seat); });
  }
  return result;
}

std::optional<std::uint32_t> Regroup::common_step() const {
  std::uint32_t step = ~0U;
  for (const auto& [seat, member] : members_) {
    step = std::min(step, member.request.returning ? member.request.returning->step : 0);
  }
  const bool all_can = std::ranges::all_of(members_, [step](const auto& entry) {
    const std::optional<Returning>& has = entry.second.request.returning;
    return has && (has->step == step || has->oldest_step == step);
  });
  return all_can ? std::optional(step) : std::nullopt;
}

}  // namespace rackrail::runtime
