#include "plan/workloads/collective_names.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <utility>

namespace rackrail::plan {
namespace {

/// Letters and digits alone, in small letters.
std::string plain(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return text;
}

using enum CollectiveKind;

// In this order: what contains another one stands before it.
constexpr std::array<std::pair<std::string_view, CollectiveKind>, 12> kNames{
    {{"allreduce", kAllReduce},
     {"reducescatter", kReduceScatter},
     {"allgather", kAllGather},
     {"alltoall", kAllToAll},
     {"all2all", kAllToAll},
     {"broadcast", kBroadcast},
     {"sendrecv", kSendReceive},
     {"crossdevicereduce", kAllReduce},
     {"reduce", kReduce},
     {"send", kSendReceive},
     {"recv", kSendReceive},
     {"gather", kOther}}};

constexpr std::array<std::pair<std::string_view, std::int64_t>, 27> kTypes{
    {{"float", 4},        {"f32", 4},          {"float32", 4},        {"int", 4},
     {"int32", 4},        {"half", 2},         {"c10half", 2},        {"f16", 2},
     {"float16", 2},      {"bfloat16", 2},     {"c10bfloat16", 2},    {"bf16", 2},
     {"double", 8},       {"f64", 8},          {"float64", 8},        {"long", 8},
     {"longint", 8},      {"int64", 8},        {"short", 2},          {"byte", 1},
     {"char", 1},         {"unsignedchar", 1}, {"signedchar", 1},     {"bool", 1},
     {"float8e4m3fn", 1}, {"float8e5m2", 1},   {"c10float8e4m3fn", 1}}};

}  // namespace

std::string_view name_of(CollectiveKind kind) {
  constexpr std::array<std::string_view, 8> kShown{
      "all-reduce", "reduce-scatter", "all-gather",       "all-to-all",
      "broadcast",  "reduce",         "send and receive", "other"};
  return kShown.at(static_cast<std::size_t>(kind));
}

CollectiveKind collective_of(std::string_view name) {
  const std::string text = plain(name);
  for (const auto& [part, kind] : kNames) {
    if (text.find(part) != std::string::npos) {
      return kind;
    }
  }
  return kOther;
}

std::optional<std::int64_t> width_of_type(std::string_view name) {
  const std::string text = plain(name);
  const auto found =
      std::ranges::find_if(kTypes, [&](const auto& one) { return one.first == text; });
  return found == kTypes.end() ? std::nullopt : std::optional(found->second);
}

double bus_factor(CollectiveKind kind, std::int64_t ranks) {
  const double others = static_cast<double>(ranks - 1) / static_cast<double>(ranks);
  switch (kind) {
    case kAllReduce:
      return 2 * others;
    case kReduceScatter:
    case kAllGather:
    case kAllToAll:
      return others;
    default:
      return 1;
  }
}

}  // namespace rackrail::plan
