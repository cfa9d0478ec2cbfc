#include "planner/tuning/buckets.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "planner/groups/many_ranks.hpp"

namespace rackrail::planner {

namespace {
/// "layer4.2.conv1.weight" → "layer4.2.conv1"; a name without dots is a layer of its own.
std::string_view layer_of(std::string_view tensor) { return tensor.substr(0, tensor.rfind('.')); }

}  // namespace

std::vector<Bytes> bucket_sizes_to_try(const plan::Workload& workload, std::size_t ranks) {
  const std::vector<std::int64_t> mebibytes =
      ranks >= kRanksOfOneSlice ? std::vector<std::int64_t>{100, 25}
                                : std::vector<std::int64_t>{100, 50, 25, 16, 8, 4, 2, 1};
  std::vector<Bytes> sizes = {workload.gradient_bytes()};
  for (const std::int64_t size : mebibytes) {
    if (Bytes(size << 20) < workload.gradient_bytes()) {
      sizes.emplace_back(size << 20);
    }
  }
  return sizes;
}

std::vector<TensorGroup> group_tensors(const plan::Workload& workload, Bytes size,
                                       const std::vector<bool>& apart) {
  // Protected tensors are small; a group of them per this many regular groups keeps messages few.
  constexpr int kRegularGroupsPerProtected = 4;
  // A whole layer among them need not wait for those: it is worth a message of its own.
  constexpr Bytes kWorthSending = Bytes(1 << 20);
  std::vector<TensorGroup> groups;
  TensorGroup regular;
  TensorGroup sensitive{{}, 0, true};
  int regular_since_flush = 0;
  const auto close = [&groups](TensorGroup& group, bool is_protected) {
    if (!group.tensors.empty()) {
      groups.push_back(std::exchange(group, TensorGroup{{}, 0, is_protected}));
    }
  };
  for (std::uint32_t i = 0; i < workload.tensors.size(); ++i) {
    const plan::GradientTensor& tensor = workload.tensors[i];
    const bool goes_apart = !apart.empty() && apart[i];
    TensorGroup& group = goes_apart ? sensitive : regular;
    group.tensors.push_back(i);
    group.elements += tensor.elements;
    if (Bytes(group.elements * 4) < (goes_apart ? std::min(size, kWorthSending) : size)) {
      continue;
    }
    close(group, goes_apart);
    if (!goes_apart && ++regular_since_flush == kRegularGroupsPerProtected) {
      close(sensitive, true);
      regular_since_flush = 0;
    }
  }
  close(regular, false);
  close(sensitive, true);
  std::stable_sort(groups.begin(), groups.end(), [](const TensorGroup& a, const TensorGroup& b) {
    return a.tensors.back() < b.tensors.back();
  });
  return groups;
}

std::vector<bool> protected_tensors(const plan::Workload& workload, bool outer_layers) {
  std::vector<bool> by_kind;
  std::vector<bool> with_outer;
  for (const plan::GradientTensor& tensor : workload.tensors) {
    const std::string_view layer = layer_of(tensor.name);
    const bool is_outer = layer == layer_of(workload.tensors.front().name) ||
                          layer == layer_of(workload.tensors.back().name);
    by_kind.push_back(tensor.is_protected());
    with_outer.push_back(by_kind.back() || is_outer);
  }
  const bool has_inner =
      std::any_of(with_outer.begin(), with_outer.end(), [](bool is_one) { return !is_one; });
  return outer_layers && has_inner ? with_outer : by_kind;
}

}  // namespace rackrail::planner
