#include "sim/measured/operation.hpp"

#include <array>
#include <cctype>
#include <utility>

#include "base/error.hpp"

namespace rackrail::sim::measured {

namespace {

using nccl::Algorithm;
using nccl::Protocol;

constexpr std::array kNames = {
    std::pair(Operation::kUnknown, "unknown operation"),
    std::pair(Operation::kAllReduce, "all-reduce"),
    std::pair(Operation::kReduceScatter, "reduce-scatter"),
    std::pair(Operation::kAllGather, "all-gather"),
    std::pair(Operation::kAllToAll, "all-to-all"),
    std::pair(Operation::kBroadcast, "broadcast"),
    std::pair(Operation::kReduce, "reduce"),
    std::pair(Operation::kGather, "gather"),
    std::pair(Operation::kScatter, "scatter"),
    std::pair(Operation::kSendReceive, "send-receive"),
    std::pair(Operation::kHypercube, "hypercube"),
};

constexpr std::array kOtherNames = {
    std::pair("alltoallv", Operation::kAllToAll),
    std::pair("bcast", Operation::kBroadcast),
    std::pair("sendrecv", Operation::kSendReceive),
};

}  // namespace

std::string plain(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return result;
}

std::string_view to_string(Operation operation) {
  for (const auto& [each, name] : kNames) {
    if (each == operation) {
      return name;
    }
  }
  return kNames.front().second;
}

Operation parse_operation(std::string_view name) {
  std::string wanted = plain(name);
  if (wanted.starts_with("nccl")) {
    wanted.erase(0, 4);
  }
  for (const std::string_view suffix : {"mpi", "perf", "test"}) {
    if (wanted.ends_with(suffix)) {
      wanted.resize(wanted.size() - suffix.size());
    }
  }
  for (const auto& [operation, known] : kNames) {
    if (wanted == plain(known)) {
      return operation;
    }
  }
  for (const auto& [known, operation] : kOtherNames) {
    if (wanted == known) {
      return operation;
    }
  }
  return Operation::kUnknown;
}

nccl::Choice parse_choice(const std::string& algorithm, const std::string& protocol) {
  nccl::Choice choice;
  const std::string wanted = plain(algorithm);
  for (const Algorithm one :
       {Algorithm::kRing, Algorithm::kTree, Algorithm::kNvls, Algorithm::kNvlsTree}) {
    if (wanted == plain(nccl::to_string(one))) {
      choice.algorithm = one;
    }
  }
  const bool is_free = wanted.empty() || wanted == "auto" || wanted.starts_with("default");
  if (!choice.algorithm && !is_free) {
    throw ConfigError(ErrorContext{"", "algorithm", "'" + algorithm + "'",
                                   "ring, tree, nvls, nvls-tree or default"});
  }
  const std::string carrier = plain(protocol);
  for (const Protocol one : {Protocol::kLl, Protocol::kLl128, Protocol::kSimple}) {
    if (carrier == plain(nccl::to_string(one))) {
      choice.protocol = one;
    }
  }
  if (!choice.protocol && !carrier.empty() && carrier != "auto" && carrier != "default") {
    throw ConfigError(
        ErrorContext{"", "protocol", "'" + protocol + "'", "ll, ll128, simple or default"});
  }
  return choice;
}

}  // namespace rackrail::sim::measured
