#include "sim/measured/inference.hpp"

#include <cmath>

namespace rackrail::sim::measured {

namespace {

constexpr std::string_view kTwice = "busbw is 2 (n - 1)/n of algbw";
constexpr std::string_view kOnce = "busbw is (n - 1)/n of algbw";
constexpr std::string_view kSame = "busbw is algbw";
constexpr std::size_t kMostToTellFromOne = 64;  ///< (n − 1)/n, of printed digits

bool is_near(double value, double expected) { return std::abs(value / expected - 1) < 0.2; }

Inferred of_reduction(const Evidence& evidence, double factor) {
  const double share = *bus_factor(Operation::kReduceScatter, evidence.ranks);
  if (evidence.has_root && is_near(factor, 1)) {
    return {Operation::kReduce, "it has a redop and a root"};
  }
  if (is_near(factor, 2 * share)) {
    return {Operation::kAllReduce, kTwice};
  }
  return is_near(factor, share) ? Inferred{Operation::kReduceScatter, kOnce} : Inferred{};
}

Inferred of_copies(const Evidence& evidence, double factor) {
  const double share = *bus_factor(Operation::kAllGather, evidence.ranks);
  const bool is_share = evidence.ranks > kMostToTellFromOne
                            ? is_near(factor, share)
                            : std::abs(factor - share) < std::abs(factor - 1);
  if (!is_near(factor, share) && !is_near(factor, 1)) {
    return {};
  }
  if (evidence.has_root) {
    return is_share && evidence.ranks <= kMostToTellFromOne
               ? Inferred{}  // gather or scatter
               : Inferred{Operation::kBroadcast, "it has a root, and busbw is algbw"};
  }
  if (!is_share) {
    return {Operation::kSendReceive, kSame};
  }
  if (evidence.has_unchecked_results || evidence.has_blank_reduction) {
    return {Operation::kAllToAll, "busbw is (n - 1)/n of algbw, and it has no redop"};
  }
  return {Operation::kAllGather, "busbw is (n - 1)/n of algbw, as of an all-to-all"};
}

}  // namespace

std::optional<double> bus_factor(Operation operation, std::size_t ranks) {
  const double share = static_cast<double>(ranks - 1) / static_cast<double>(ranks);
  switch (operation) {
    case Operation::kUnknown:
      return std::nullopt;
    case Operation::kAllReduce:
      return 2 * share;
    case Operation::kBroadcast:
    case Operation::kReduce:
    case Operation::kSendReceive:
      return 1;
    default:
      return share;
  }
}

Inferred infer(const Evidence& evidence) {
  if (evidence.ranks < 2) {
    return {};
  }
  if (evidence.has_reduction && evidence.has_root && !evidence.factor) {
    return {Operation::kReduce, "it has a redop and a root"};
  }
  if (!evidence.factor) {
    return {};
  }
  return evidence.has_reduction ? of_reduction(evidence, *evidence.factor)
                                : of_copies(evidence, *evidence.factor);
}

}  // namespace rackrail::sim::measured
